"""C++ and CUDA sources compiled at run time: with host code, imported as modules; without, kernels."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Sequence
from typing import Any

from . import _mscclpp
from .errors import InvalidUsage, Timeout
from .kernels import Kernel
from .native_cache import NativeCache
from .native_toolchain import (
    command_of,
    find_host_compiler,
    find_nvcc,
    include_folders,
    is_nvcc,
    package_folder,
    version_of,
)
from .nvrtc import load_nvrtc

_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
# They change what compilers read and do.
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")

_loading = threading.Lock()
_loaded: dict[pathlib.Path, types.ModuleType] = {}  # by the path of what was compiled


class NativeKernels:
    """The kernels of a source for GPUs. `program`: the compiled code."""

    def __init__(self, program: _mscclpp.Program) -> None:
        self.program = program

    def kernel(self, name: str) -> Kernel:
        """The Kernel, loaded on the current GPU. Raises InvalidUsage without CUDA, and for an unknown name."""
        return Kernel(self.program.kernel(name))


def compile_native(
    name: str,
    file: str | os.PathLike[str] | None = None,
    code: str | None = None,
    *,
    compiler: str | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    kernels: Sequence[str] = (),
    timeout: float = 600,
) -> Any:
    """Compiles a C++ or CUDA source, unless that has been done before, and imports it as module `name`.

    The source, a file or a text, has host code and defines the module: with PYBIND11_MODULE, NB_MODULE or a function
    PyInit_<name>. It includes the library's headers, MSCCL++'s names for them too, and uses the library of this
    package. nvcc compiles files *.cu, and texts with `__global__`, where it is found and the package was built with
    CUDA; a C++ compiler everything else, so that what is for GPUs stands between `#if defined(__CUDACC__)` and `#endif`
    in a source that is for CPU ranks too. `compiler`: another one to use; `options`: more of its options, such as
    "-arch=sm_90a" (by default the current GPU's; without one, those that the package was built for); `include_dirs`:
    more folders of headers.

    A source without host code needs no compiler but NVRTC (docs/jit.md): with `kernels`, names such as "scale<float>",
    the result is a NativeKernels instead of a module. Its `options` are NVRTC's.

    Each rank may call it at once: one process compiles, and the others wait, at most `timeout` seconds. What was
    compiled is kept in the folder native of MSCCLPP_CACHE_DIR, and compiled again when the source, a header or a
    compiler has changed. Raises InvalidUsage with the compiler's messages, Timeout, and Error if there is no compiler.
    """
    if not name.isidentifier():
        raise InvalidUsage(f"name is {name!r}: pass the name of the module that the source defines")
    if (file is None) == (code is None):
        raise InvalidUsage("compile_native takes one of file and code")
    source = _Source(name, file, code)
    folders = [os.path.abspath(folder) for folder in include_dirs]
    if kernels:
        return _compile_kernels(source, kernels, options, folders)
    command = _command(source, compiler)
    folders += include_folders(command)
    flags = [*_flags(command, options), *options, *(f"-I{folder}" for folder in folders)]
    key = _key(source, command, flags)
    make = functools.partial(_compile, source, command, flags, timeout)
    return _load(name, _cache().find_or_make(key, name, _SUFFIX, make, timeout))


def compile_cubin(name, code, compiler, architecture, options=(), include_dirs=(), timeout=600):
    """The machine code of a source without host code, by nvcc: for KernelBuilder. Cached and raising as above."""
    source = _Source(name, None, code)
    command = command_of(compiler, "compiler")
    if not is_nvcc(command):
        raise InvalidUsage(f"compiler is {compiler}: machine code of GPUs is compiled by nvcc, or by NVRTC without one")
    folders = [os.path.abspath(folder) for folder in include_dirs] + include_folders(command)
    flags = ["-x=cu", "-cubin", f"-arch={architecture}", "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr"]
    flags += ["--extended-lambda", *options, *(f"-I{folder}" for folder in folders)]

    def make(folder, path):
        (folder / source.file_name).write_text(source.text)
        command_line = [*command, *flags, "-MMD", "-MF", "0.d", source.file_name, "-o", str(path)]
        _run(command_line, folder, time.monotonic() + timeout)
        headers = {folder / header for header in _headers(folder / "0.d")}
        return [header for header in headers if folder not in header.parents]

    key = _key(source, command, flags)
    return _cache().find_or_make(key, name, ".cubin", make, timeout).read_bytes()


class _Source:
    def __init__(self, name: str, file: str | os.PathLike[str] | None, code: str | None) -> None:
        self.file = None if file is None else pathlib.Path(file).absolute()
        if self.file is not None:
            try:
                code = self.file.read_text()
            except OSError as error:
                raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None
        self.text = code or ""
        self.is_cuda = self.file.suffix == ".cu" if self.file else "__global__" in self.text
        self.file_name = self.file.name if self.file else name + (".cu" if self.is_cuda else ".cpp")
        self.uses_nanobind = re.search(r"^\s*#\s*include\s*<nanobind/", self.text, re.MULTILINE) is not None


def _command(source: _Source, compiler: str | None) -> list[str]:
    if compiler is not None:
        return command_of(compiler, "compiler")
    nvcc = find_nvcc() if source.is_cuda and _mscclpp.has_cuda else None
    return nvcc or find_host_compiler()


def _compile_kernels(
    source: _Source, kernels: Sequence[str], options: Sequence[str], folders: list[str]
) -> NativeKernels:
    load_nvrtc()
    own = [option for option in options if option.startswith("-arch=")]  # NVRTC's binding has an argument for it
    options = [option for option in options if option not in own]
    architecture = own[-1].removeprefix("-arch=") if own else ""
    if source.file is not None:
        folders = [str(source.file.parent), *folders]
    name = str(source.file or source.file_name)
    return NativeKernels(
        _mscclpp.compile_kernels(source.text, name, list(kernels), architecture, options, folders)
    )


def _flags(command: list[str], options: Sequence[str]) -> list[str]:
    common = ["-std=c++20", "-O3", "-DNDEBUG"]
    if not is_nvcc(command):
        return [*common, "-fPIC", "-fvisibility=hidden", "-x", "c++"]
    flags = [*common, "-Xcompiler=-fPIC,-fvisibility=hidden", "--expt-relaxed-constexpr", "--extended-lambda"]
    if any(re.match("-arch|-gencode|--gpu", option) for option in options):
        return flags
    own = _mscclpp.gpu_architecture()
    architectures = [own] if own else _mscclpp.gpu_architectures
    return flags + [f"-gencode=arch=compute_{each},code=sm_{each}" for each in architectures]


def _key(source: _Source, command: list[str], flags: list[str]) -> str:
    # The suffix has the version of Python, and the path of the extension is linked into the module.
    variables = [os.environ.get(variable) for variable in _VARIABLES]
    parts = [str(source.file), source.file_name, source.text, command, version_of(tuple(command)), flags, variables]
    parts += [_SUFFIX, _mscclpp.__file__]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _cache() -> NativeCache:
    try:
        return NativeCache(pathlib.Path(_mscclpp.env().cache_dir).absolute() / "native")
    except OSError as error:
        warnings.warn(
            f"compiled modules are not kept: {error}; set MSCCLPP_CACHE_DIR to a folder of your own",
            RuntimeWarning,
            stacklevel=3,
        )
        return NativeCache(_temporary_folder())


@functools.lru_cache
def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="mscclpp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _compile(
    source: _Source, command: list[str], flags: list[str], timeout: float, folder: pathlib.Path, path: pathlib.Path
) -> list[pathlib.Path]:
    """Writes the module to `path`, in `folder`, and returns the headers that were read."""
    deadline = time.monotonic() + timeout
    if source.file is None:
        (folder / source.file_name).write_text(source.text)
    sources = [source.file or pathlib.Path(source.file_name)]  # relative, for short messages
    if source.uses_nanobind:
        nanobind = package_folder("nanobind")
        if nanobind is None:
            raise InvalidUsage("the source includes nanobind, which is not installed: pip install nanobind")
        sources.append(nanobind / "src" / "nb_combined.cpp")
        flags = [*flags, f"-I{nanobind / 'ext' / 'robin_map' / 'include'}"]
    objects: list[str] = []
    for index, each in enumerate(sources):
        objects.append(f"{index}.o")
        _run([*command, *flags, "-MMD", "-MF", f"{index}.d", "-c", str(each), "-o", objects[-1]], folder, deadline)
    _run([*command, "-shared", *objects, _mscclpp.__file__, "-o", str(path)], folder, deadline)
    headers = {folder / header for index in range(len(sources)) for header in _headers(folder / f"{index}.d")}
    return [header for header in headers if folder not in header.parents]


def _run(command: list[str], folder: pathlib.Path, deadline: float) -> None:
    # A group of its own, so that what the compiler has started ends with it.
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Timeout(f"the compiler has not ended in time: {shlex.join(command)}") from None
        raise
    if process.returncode != 0:
        hint = ""
        if not is_nvcc(command) and ("__global__" in output or "<<<" in output):
            hint = "\nThis compiler has no CUDA: sources with kernels and host code need nvcc, and a package that was "
            hint += "built with CUDA; for a source without host code, pass kernels="
        raise InvalidUsage(f"the source does not compile:\n{output}{shlex.join(command)}{hint}")


def _headers(rule: pathlib.Path) -> list[str]:
    """The prerequisites of a rule for make."""
    _, _, prerequisites = rule.read_text().replace("\\\n", " ").partition(":")
    return [re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in re.findall(r"(?:\\.|\S)+", prerequisites)]


def _load(name: str, path: pathlib.Path) -> types.ModuleType:
    with _loading:
        module = _loaded.get(path)
        other = sys.modules.get(name)
        if other is not None and other not in _loaded.values():
            raise InvalidUsage(f"there is another module {name}: give the one that is compiled another name")
        if module is None:
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            spec = importlib.machinery.ModuleSpec(name, loader, origin=str(path))
            spec.has_location = True  # the module has a __file__
            try:
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
            except ImportError as error:
                raise InvalidUsage(
                    f"the compiled module cannot be imported; its source has PYBIND11_MODULE({name}, m), "
                    f"NB_MODULE({name}, m) or PyInit_{name}: {error}"
                ) from error
            _loaded[path] = module
        sys.modules[name] = module
        return module
