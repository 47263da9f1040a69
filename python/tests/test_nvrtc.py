"""NVRTC is found in packages of PyPI."""

import os
import subprocess
import sys

import pytest

FIND = """
import ctypes, pathlib, sys
real = ctypes.CDLL
def without_toolkit(name, *arguments, **options):
    if "/" not in name:
        raise OSError(name)  # as where the loader knows no toolkit
    return real(name, *arguments, **options)
ctypes.CDLL = without_toolkit
from mscclpp.nvrtc import load_nvrtc
load_nvrtc()
print([line.split()[-1] for line in open("/proc/self/maps") if "libnvrtc" in line])
"""


def test_installed_package(tmp_path):
    """A library of that name in a package, which need not be NVRTC."""
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    library = folder / "libnvrtc.so.13"
    compiler = subprocess.run(["sh", "-c", f"echo 'int x;' | cc -shared -fPIC -xc - -o {library}"])
    if compiler.returncode != 0:
        pytest.skip("no C compiler")
    for variables, expected in (({}, True), ({"MSCCLPP_NVRTC_LIB_PATH": "/another"}, False)):
        # Before other folders of the same name, as a package of a virtual environment is.
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{FIND}"
        found = subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True,
                               text=True, check=True)  # fmt: skip
        assert (str(library) in found.stdout) == expected, found.stdout
