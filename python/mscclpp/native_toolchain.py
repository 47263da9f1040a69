"""What native modules are compiled with: compilers, and the folders of headers."""

import functools
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sysconfig

from ._mscclpp import ErrorCode, env
from .errors import Error, InvalidUsage


def find_nvcc():
    """The command of nvcc: CUDACXX, else from PATH or the toolkits; None if there is none."""
    chosen = os.environ.get("CUDACXX")
    if chosen:
        return command_of(chosen, "CUDACXX")
    folders = os.pathsep.join(str(root / "bin") for root in _toolkits())
    found = shutil.which("nvcc") or shutil.which("nvcc", path=folders)
    return [found] if found else None


def find_host_compiler():
    """The command of the C++ compiler: CXX, else g++, clang++ or c++ from PATH. Raises Error if there is none."""
    chosen = os.environ.get("CXX")
    if chosen:
        return command_of(chosen, "CXX")
    for name in ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found:
            return [found]
    raise Error("no C++ compiler was found: install g++, or name one in CXX", ErrorCode.SystemError)


def command_of(text, origin):
    """A compiler and its first options, as written in a variable of the environment. Raises InvalidUsage."""
    program, *options = shlex.split(text) or [""]
    found = shutil.which(program)
    if found is None:
        raise InvalidUsage(f"{origin}={text}: there is no such program; name a compiler")
    return [found, *options]


def is_nvcc(command):
    return any(pathlib.Path(part).name == "nvcc" for part in command)


@functools.lru_cache
def version_of(command):
    """What a compiler says about its version; `command` is a tuple."""
    result = subprocess.run([*command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise Error(f"{shlex.join(command)} --version failed:\n{result.stdout}", ErrorCode.SystemError)
    return result.stdout


def include_folders(compiler):
    """The folders of the library's headers, Python's, pybind11's and nanobind's if installed, and CUDA's.

    Raises Error if there are no CUDA headers, and InvalidUsage if a variable names a folder without them.
    """
    folders = [pathlib.Path(__file__).parent / "include"]
    folders += [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
    folders += [root / "include" for root in map(package_folder, ("pybind11", "nanobind")) if root]
    roots = _toolkits()
    if is_nvcc(compiler):  # its own headers fit it
        roots.insert(0, pathlib.Path(compiler[0]).resolve().parent.parent)
    toolkits = [root / "include" for root in roots]
    with_cccl = [folder for toolkit in toolkits for folder in (toolkit / "cccl", toolkit)]
    folders.append(_folder_with("cuda/std/cstddef", "cccl_include_dir", with_cccl, "nvidia-cuda-cccl"))
    folders.append(_folder_with("cuda_runtime.h", "cuda_include_dir", toolkits, "nvidia-cuda-runtime"))
    return list(dict.fromkeys(map(str, folders)))


def package_folder(name):
    """The folder of an installed package, which is not imported; None if there is none."""
    found = importlib.util.find_spec(name)
    return pathlib.Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _toolkits():
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    roots += [nvcc and pathlib.Path(nvcc).resolve().parent.parent, "/usr/local/cuda"]
    nvidia = importlib.util.find_spec("nvidia")
    for folder in nvidia.submodule_search_locations if nvidia else []:
        # cu13 has everything; NVIDIA's packages of CUDA 12 have a folder each.
        roots += [pathlib.Path(folder) / name for name in ("cu13", "cuda_nvcc", "cuda_cccl", "cuda_runtime")]
    return [pathlib.Path(root) for root in roots if root]


def _folder_with(header, setting, folders, package):
    chosen = getattr(env(), setting)
    for folder in [chosen] if chosen else folders:
        if (pathlib.Path(folder) / header).is_file():
            return folder
    variable = "MSCCLPP_" + setting.upper()
    if chosen:
        raise InvalidUsage(f"{variable}={chosen} has no {header}: name a folder that has it")
    tried = "".join(f"\n  {folder}" for folder in folders)
    raise Error(
        f"no folder has {header}, which the library's headers include: install the CUDA toolkit, or PyPI's {package}, "
        f"or name the folder in {variable}. Tried:{tried}",
        ErrorCode.SystemError,
    )
