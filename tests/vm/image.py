"""The VM's kernel and initramfs, created once and cached in a folder.

The kernel is Debian's, downloaded by apt and unpacked, never installed. What vm_init.sh needs of it as modules, and a
static busybox, go into a small archive that the kernel unpacks at boot.
"""

import fcntl
import hashlib
import lzma
import pathlib
import re
import shutil
import subprocess
import tempfile

# The kernel series is pinned: verbs behave differently in others.
# Whole lines: there is "-unsigned" behind some names, for a while also of a kernel whose signed package is yet to come.
KERNEL_PACKAGE = re.compile(r"^linux-image-6\.1\.0-\d+-amd64$", re.MULTILINE)
MODULES = (
    "virtio_pci virtio_console virtio_rng 9p 9pnet_virtio overlay dummy veth bridge sch_netem crc32_generic"
    " ib_uverbs rdma_ucm rdma_rxe"
).split()
HERE = pathlib.Path(__file__).resolve().parent
BUSYBOX = pathlib.Path("/bin/busybox")


class Unavailable(Exception):
    """A part of the VM is not available on this machine."""


def output_of(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if result.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def kernel_package():
    """The newest kernel package of the series in apt."""
    names = set()
    for attempt in range(2):
        names = set(KERNEL_PACKAGE.findall(output_of("apt-cache", "pkgnames", "linux-image-6.1.0")))
        if names:
            break
        if attempt == 0:
            output_of("apt-get", "update", "-qq")
    if not names:
        raise Unavailable("apt knows no linux-image-6.1.0-*-amd64")
    return max(names, key=lambda name: int(name.split("-")[3]))


def unpack_kernel(package, folder):
    """Downloads the package and unpacks it into folder."""
    output_of("apt-get", "download", "-o", "APT::Sandbox::User=root", package, cwd=folder)
    archive = next(folder.glob("*.deb"))
    output_of("dpkg", "-x", str(archive), str(folder))
    archive.unlink()


def extract_vmlinux(vmlinuz):
    """Extracts the kernel from a compressed image: emulation boots it much faster."""
    data = vmlinuz.read_bytes()
    start = data.index(b"\xfd7zXZ\x00")
    return lzma.LZMADecompressor().decompress(data[start:])


def modules_in_order(root):
    """Paths of MODULES and of what they need, each after its needs."""
    files = {path.stem.replace("-", "_"): path for path in root.rglob("*.ko")}
    builtin = next(root.rglob("modules.builtin")).read_text()
    ordered = {}

    def add(name):
        if name in ordered or f"/{name}.ko" in builtin.replace("-", "_"):
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for need in needs.group(1).decode().split(",") if needs else []:
            if need:
                add(need.replace("-", "_"))
        ordered[name] = files[name]

    for module in MODULES:
        add(module)
    return list(ordered.values())


class Archive:
    """A cpio archive in the format that kernels read ("newc")."""

    def __init__(self):
        self.parts = []
        self.entries = 0

    def add(self, name, mode, content=b""):
        self.entries += 1
        fields = [self.entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.parts += [header, b"\0" * (-len(header) % 4), content, b"\0" * (-len(content) % 4)]

    def folder(self, name):
        self.add(name, 0o040755)

    def file(self, name, content):
        self.add(name, 0o100755, content)

    def finish(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self.parts)


def first_file_system(modules):
    archive = Archive()
    for folder in ("bin", "modules", "proc", "sys", "dev", "lower", "writable", "vm"):
        archive.folder(folder)
    archive.file("bin/busybox", BUSYBOX.read_bytes())
    archive.add("bin/sh", 0o120777, b"busybox")
    archive.file("init", (HERE / "vm_init.sh").read_bytes())
    archive.file("modules/order", "".join(path.name + "\n" for path in modules).encode())
    for path in modules:
        archive.file("modules/" + path.name, path.read_bytes())
    # Not compressed: decompression is slow under emulation.
    return archive.finish()


def prepare(cache):
    """Returns (kernel, first file system) as paths in cache, which several callers may share. Throws Unavailable."""
    if not BUSYBOX.exists():
        raise Unavailable("busybox is missing (Debian: busybox-static)")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernels = sorted(cache.glob("linux-image-*"))
        if not kernels:
            package = kernel_package()
            with tempfile.TemporaryDirectory(dir=cache, prefix="unpacking-") as folder:
                folder = pathlib.Path(folder)
                unpack_kernel(package, folder)
                kernel = extract_vmlinux(next(folder.glob("boot/vmlinuz-*")))
                (folder / "vmlinux").write_bytes(kernel)
                modules = modules_in_order(folder)
                small = folder / "small"
                (small / "modules").mkdir(parents=True)
                (small / "vmlinux").write_bytes(kernel)
                for number, path in enumerate(modules):
                    shutil.copy(path, small / "modules" / f"{number:02}-{path.name}")
                small.rename(cache / package)
            kernels = [cache / package]
        folder = kernels[-1]
        content = first_file_system(sorted((folder / "modules").iterdir()))
        initramfs = folder / f"initramfs-{hashlib.sha256(content).hexdigest()[:16]}"
        if not initramfs.exists():
            partial = folder / "initramfs.partial"
            partial.write_bytes(content)
            for old in folder.glob("initramfs-*"):
                old.unlink()
            partial.rename(initramfs)
        return folder / "vmlinux", initramfs
