# Runs in the VM, on the host's file system: creates the network devices, then runs the command. Argument: their number.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
here=/run/vm
stty -F /dev/hvc0 raw 2>/dev/null

# rxe devices over veth pairs connected by a bridge, so that they reach each other within this machine.
make_nics() {
  ip link set lo up && hostname vm
  [ "$1" = 0 ] && return
  ip link add bridge0 type bridge && ip link set bridge0 up || return 1
  for setting in accept_local=1 rp_filter=0 arp_ignore=1; do
    for scope in all default; do echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/$scope/${setting%=*}"; done
  done
  nic=0
  while [ "$nic" -lt "$1" ]; do
    ip link add "eth$nic" type veth peer name "port$nic" || return 1
    ip link set "port$nic" master bridge0 up || return 1
    ip address add "10.77.0.$((nic + 1))/24" dev "eth$nic" || return 1
    ip link set "eth$nic" up || return 1
    rdma link add "rxe$nic" type rxe netdev "eth$nic" || return 1
    nic=$((nic + 1))
  done
  # GID 1 is that of RoCE v2 over IPv4; it appears once the kernel has processed the address.
  nic=0
  while [ "$nic" -lt "$1" ]; do
    tries=0
    until grep -q ffff "/sys/class/infiniband/rxe$nic/ports/1/gids/1" 2>/dev/null; do
      tries=$((tries + 1))
      [ "$tries" -gt 100 ] && echo "vm: rxe$nic has no address" && return 1
      sleep 0.1
    done
    nic=$((nic + 1))
  done
}

if make_nics "$1"; then
  sh "$here/command.sh"
  echo $? >"$here/status"
fi
