#!/usr/bin/env python3
"""Makes a wheel of the Python package as users do, installs it into an empty virtual environment, and uses it there.

usage: wheel.py --build BUILD_FOLDER [--toolkit CUDA_TOOLKIT] [--other-python PYTHON]...

Without a network: meson-python, Meson, Ninja and nanobind are those of the Python that runs this. The wheel is for CPU
ranks. It is compiled in BUILD_FOLDER, beside the build under test and with the same options, so that a compiler cache
has most of it. Another Python, of a version from 3.12 on, installs the same wheel if this one is 3.12 or newer.
"""

import argparse
import os
import pathlib
import sys
import sysconfig
import tempfile
import zipfile

from quiet_run import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = ("cuda=disabled", "optimization=1", "debug=false", "b_ndebug=false", "werror=true")

PROGRAM = """
import ctypes, pathlib, sys
import mscclpp

def work(comm):
    buffer = mscclpp.HostBuffer(400)
    data = (ctypes.c_uint8 * 400).from_address(buffer.data())
    data[:] = bytes([comm.my_rank + 1]) * 400
    comm.collectives(mscclpp.DeviceType.CPU).run(
        mscclpp.CollectiveType.all_reduce, buffer.data(), buffer.data(), 400, mscclpp.DataType.uint8)
    return set(data)

if __name__ == "__main__":
    assert mscclpp.run(2, work, timeout=60) == [{3}, {3}]
    assert pathlib.Path(mscclpp.__file__).is_relative_to(sys.prefix), mscclpp.__file__
    assert (pathlib.Path(mscclpp.get_include()) / "mscclpp" / "kernels" / "collectives.hpp").exists()
    print("used", mscclpp.version["version"], "in Python", sys.version.split()[0])
"""


def make_wheel(build, toolkit, folder):
    settings = [f"-Csetup-args=-D{option}" for option in (*OPTIONS, f"toolkit_dir={toolkit}")]
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--wheel-dir", folder,
        f"-Cbuild-dir={build}", *settings, env=environment)  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_content(wheel):
    is_limited = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{version}-{'abi3' if is_limited else version}-" in wheel.name, wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    modules = [name for name in names if name.startswith("mscclpp/_mscclpp") and name.endswith(".so")]
    assert len(modules) == 1 and (".abi3." in modules[0]) == is_limited, modules
    for name in ("__init__.py", "py.typed", "_mscclpp.pyi", "include/mscclpp/kernels/collectives.hpp"):
        assert f"mscclpp/{name}" in names, name
    others = [name for name in names if not name.startswith(("mscclpp/", "mscclpp-"))]
    assert others == [], others
    with tempfile.TemporaryDirectory() as folder:
        # What glibc and libstdc++ do not give must be in the module.
        module = zipfile.ZipFile(wheel).extract(modules[0], folder)
        lines = [line for line in run("readelf", "-d", module).splitlines() if "NEEDED" in line]
        needed = [line.split()[-1].strip("[]") for line in lines]
    known = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")
    assert all(name.startswith(known) for name in needed), needed


def use(wheel, python, folder):
    """In an environment without anything else, and outside the repository."""
    run(python, "-m", "venv", folder / "venv")
    run(folder / "venv/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    print(run(folder / "venv/bin/python", program, cwd=folder, env=environment), end="")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--toolkit", default="/usr/local/cuda")
    parser.add_argument("--other-python", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel = make_wheel(options.build.resolve(), options.toolkit, folder)
        check_content(wheel)
        for i, python in enumerate([sys.executable, *options.other_python]):
            (folder / str(i)).mkdir()
            use(wheel, python, folder / str(i))
    print(wheel.name)


if __name__ == "__main__":
    main()
