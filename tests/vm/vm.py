#!/usr/bin/env python3
"""Runs a command in a virtual machine that has RDMA devices (Soft-RoCE), and exits with the command's status.

usage: vm.py [--nics N] [--timeout SECONDS] [--cache FOLDER] [--results FOLDER] [--env NAME=VALUE]... -- COMMAND...

The VM sees this machine's file system read-only, under a layer in memory that is lost at the end. The command runs
there as root in the same folder; what it leaves in /run/vm/results comes back to --results. Devices are rxe0, rxe1,
... over eth0, eth1, ... with addresses 10.77.0.1, .2, ...; GID index 1 is RoCE v2 over IPv4.

Exit status 77: the VM cannot be created here (no qemu, no kernel package); 1 instead if MSCCLPP_REQUIRE_VM=1.
124: the time limit is exceeded. 125: the VM ended before the command did.
"""

import argparse
import ctypes
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import image

# A run's files: on disk, to leave the memory to the VM.
FOLDER = os.environ.get("MSCCLPP_VM_FOLDER", "/var/tmp")
NOT_HERE, TIMED_OUT, BROKEN = 77, 124, 125
QEMU = "qemu-system-x86_64"
NEEDED = {QEMU: "qemu-system-x86", "rdma": "iproute2", "ibv_devinfo": "ibverbs-utils"}


def die_with_parent():
    """Runs in the child: the VM ends with this script, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def qemu_command(kernel, initramfs, share, arguments):
    local = "local,security_model=none,multidevs=remap"
    return [
        QEMU,
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-m", str(arguments.memory), "-smp", "2"),
        *("-nodefaults", "-no-reboot", "-display", "none", "-monitor", "none"),
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", f"console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off vm.nics={arguments.nics}"),
        *("-serial", f"file:{share}/console"),
        *("-chardev", "stdio,id=out,signal=off"),
        *("-device", "virtio-serial-pci", "-device", "virtconsole,chardev=out"),
        *("-device", "virtio-rng-pci"),
        *("-virtfs", f"{local},path=/,mount_tag=root,readonly=on"),
        *("-virtfs", f"{local},path={share},mount_tag=share"),
    ]


def command_script(command, environment):
    lines = [f"export {shlex.quote(name)}={shlex.quote(value)}" for name, _, value in environment]
    lines += [f"cd {shlex.quote(os.getcwd())} || exit 1", f"exec {shlex.join(command)}"]
    return "\n".join(lines) + "\n"


def run(arguments, kernel, initramfs):
    """Boots, runs the command, and returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="mscclpp-vm-", dir=FOLDER) as folder:
        share = pathlib.Path(folder)
        (share / "results").mkdir()
        shutil.copy(image.HERE / "vm_run.sh", share)
        environment = [word.partition("=") for word in arguments.env]
        (share / "command.sh").write_text(command_script(arguments.command, environment))
        started = time.monotonic()
        machine = subprocess.Popen(
            qemu_command(kernel, initramfs, share, arguments), stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        try:
            machine.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            print(f"vm: not done after {arguments.timeout} s", file=sys.stderr)
            return TIMED_OUT
        finally:
            machine.kill()
            machine.wait()
        if arguments.results:
            shutil.copytree(share / "results", arguments.results, dirs_exist_ok=True)
        print(f"vm: up for {time.monotonic() - started:.1f} s", file=sys.stderr)
        status = share / "status"
        if not status.exists() or not status.read_text().strip():
            print("vm: it ended before the command did; its console:", file=sys.stderr)
            print((share / "console").read_text(errors="replace")[-4000:], file=sys.stderr)
            return BROKEN
        return int(status.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nics", type=int, default=2, help="how many RDMA devices")
    parser.add_argument("--memory", type=int, default=2048, help="of the VM, in MiB")
    parser.add_argument("--timeout", type=float, default=300, help="seconds, the boot included")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/mscclpp-vm")
    parser.add_argument("--results", type=pathlib.Path, help="where to put what the command leaves in results")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for program, package in NEEDED.items():
            if not shutil.which(program):
                raise image.Unavailable(f"{program} is missing (Debian: {package})")
        kernel, initramfs = image.prepare(arguments.cache)
    except image.Unavailable as error:
        print(f"vm: {error}", file=sys.stderr)
        return 1 if os.environ.get("MSCCLPP_REQUIRE_VM") == "1" else NOT_HERE
    return run(arguments, kernel, initramfs)


if __name__ == "__main__":
    sys.exit(main())
