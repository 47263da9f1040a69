#!/bin/sh
# The VM's first process: the host's file system under a writable layer, RDMA devices over Ethernet, one command.
# Its settings are on the kernel's command line: vm.nics=N.
bb=/bin/busybox

give_up() {
  for console in /dev/console /vm/dev/console; do [ -c $console ] && echo "vm: $1" >$console; done
  $bb reboot -f
}

$bb mount -t proc none /proc
$bb mount -t sysfs none /sys
$bb mount -t devtmpfs none /dev
while read -r module; do
  $bb insmod "/modules/$module" || give_up "loading $module failed"
done </modules/order

nics=0
for word in $($bb cat /proc/cmdline); do
  case $word in vm.nics=*) nics=${word#*=} ;; esac
done

$bb mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /lower || give_up "no root"
$bb mount -t tmpfs -o size=75% none /writable
$bb mkdir /writable/upper /writable/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/writable/upper,workdir=/writable/work none /vm ||
  give_up "no writable layer"
for folder in proc sys dev; do $bb mount --move "/$folder" "/vm/$folder"; done
for folder in tmp run dev/shm dev/pts; do $bb mkdir -p "/vm/$folder"; done
$bb mount -t devpts none /vm/dev/pts
$bb mount -t tmpfs none /vm/run
$bb mount -t tmpfs none /vm/dev/shm
$bb mkdir -p /vm/run/vm
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 share /vm/run/vm || give_up "no shared folder"

$bb chroot /vm /bin/sh /run/vm/vm_run.sh "$nics" </vm/dev/null >/vm/dev/hvc0 2>&1 || give_up "the script failed"
$bb sync
$bb reboot -f
