"""Kernels of CUDA source, compiled at run time and launched with packed arguments, in MSCCL++'s interface."""

from __future__ import annotations

import ctypes
import os
import pathlib
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ._mscclpp import HostBuffer, LoadedKernel, RawGpuBuffer, RegisteredMemory, compile_kernels
from .arrays import stream_handle, view
from .errors import InvalidUsage


class Kernel:
    """A kernel loaded on one GPU; KernelBuilder makes it."""

    def __init__(self, loaded: LoadedKernel):
        self._loaded = loaded

    def launch_kernel(self, params: bytes, nblocks: int, nthreads: int, shared: int = 0, stream: Any = None) -> None:
        """Enqueues the kernel.

        params: what pack() returns. nblocks, nthreads: of the grid, and of each block. shared: bytes of dynamic shared
        memory. stream: a stream of torch or cupy or its handle; by default the current one of torch, if it is in use.
        Raises InvalidUsage if the arguments do not have the layout of the kernel's parameters.
        """
        self._loaded.launch(params, nblocks, nthreads, shared, _stream_of(stream))


class KernelBuilder:
    """Compiles one kernel of a source file, or of a text, for the current GPU.

    file: the source's name, in the folder `file_dir`, by default the current one; or `code`, its text. kernel_name:
    the kernel; a template with its arguments, such as "scale<float>". macro_dict: macros by name. options: more options
    of NVRTC. architecture: "sm_90a" for machine code, "compute_90" for PTX; it takes the place of the current GPU's.

    The source is for the device: it includes the library's device headers, libcu++ and the like, and headers of its own
    folder, but none of the host's C++ library. The compiler is NVRTC, also where there is nvcc, so that what compiles
    on one machine does on another; its results are kept in MSCCLPP_CACHE_DIR (docs/jit.md). `program` is the result.
    Raises InvalidUsage with the compiler's messages.
    """

    def __init__(self, file: str | os.PathLike[str] | None = None, kernel_name: str = "",
                 file_dir: str | os.PathLike[str] | None = None, macro_dict: Mapping[str, Any] | None = None, *,
                 code: str | None = None, options: Iterable[str] = (), architecture: str = ""):  # fmt: skip
        if (file is None) == (code is None):
            raise InvalidUsage("KernelBuilder takes one of file= and code=")
        path = pathlib.Path(file_dir or ".") / (file or "kernel.cu")
        if code is None:
            if not path.is_file():
                raise InvalidUsage(f"there is no file {path}: pass its name, and its folder as file_dir=")
            code = path.read_text(encoding="utf-8")
        folders = [str(path.parent)]
        names = pathlib.Path(__file__).parent / "include"  # MSCCL++'s names for the library's headers
        if names.is_dir():
            folders.append(str(names))
        macros = [f"-D{name}={value}" for name, value in (macro_dict or {}).items()]
        options = [*macros, *options]
        self._kernel_name = kernel_name
        self.program = compile_kernels(code, path.name, [kernel_name], architecture, options, folders)

    def get_compiled_kernel(self) -> Kernel:
        """The Kernel, loaded on the current GPU. Raises InvalidUsage in a build without CUDA."""
        return Kernel(self.program.kernel(self._kernel_name))


def pack(*args: Any) -> bytes:
    """The bytes of a kernel's arguments, each at the alignment of its type.

    An int or bool is an int of C; numpy scalars and ctypes objects have their own types. An array, a buffer or a
    RegisteredMemory is its address, and None a null pointer. A channel, a semaphore or a device handle is the handle's
    bytes. Raises InvalidUsage for other types.
    """
    packed = bytearray()
    for arg in args:
        data, alignment = _argument(arg)
        packed += bytes(-len(packed) % alignment) + data
    return bytes(packed)


def _argument(arg: Any) -> tuple[bytes, int]:
    """The bytes of an argument, and their alignment."""
    if isinstance(arg, int):
        try:
            return struct.pack("i", arg), 4
        except struct.error:
            raise InvalidUsage(f"{arg} does not fit an int: pass a ctypes.c_int64 or c_size_t") from None
    if isinstance(arg, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array, ctypes._Pointer)):
        return bytes(arg), ctypes.alignment(arg)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(arg, numpy.generic):
        return arg.tobytes(), arg.dtype.alignment
    if hasattr(arg, "device_handle"):
        arg = arg.device_handle()
    if isinstance(getattr(arg, "raw", None), bytes):
        return arg.raw, 8
    return struct.pack("P", _address(arg)), 8


def _address(arg: Any) -> int:
    if arg is None:
        return 0
    if isinstance(arg, (HostBuffer, RawGpuBuffer, RegisteredMemory)):
        return arg.data()
    if hasattr(arg, "data_ptr"):  # of torch: any element type and strides, which the kernel knows
        return arg.data_ptr()
    try:
        return view(arg, "the argument").address
    except InvalidUsage as error:
        advice = "a number of a type that is not int is a ctypes.c_float or the like, or a scalar of numpy"
        raise InvalidUsage(f"{error}; {advice}") from None


def _stream_of(stream: Any) -> int:
    if stream is not None:
        return stream_handle(stream)
    torch: Any = sys.modules.get("torch")
    in_use = torch is not None and torch.cuda.is_initialized()
    return torch.cuda.current_stream().cuda_stream if in_use else 0
