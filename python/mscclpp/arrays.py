"""Arrays of other libraries as addresses with a type, a shape and a device, without importing these libraries."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._mscclpp import DataType, DeviceType, buffer_address, describe_dlpack, size_of
from .dtypes import to_dtype
from .errors import InvalidUsage

# Looking up a member of an enumeration takes as long as reading a tensor's address.
CPU, GPU = DeviceType.CPU, DeviceType.GPU
_DLPACK_DEVICES = {1: CPU, 2: GPU, 3: CPU, 13: GPU}

UNKNOWN_DEVICE = -1  # of an interface that does not tell


@dataclasses.dataclass(slots=True)
class Array:
    """What a call needs to know of a tensor. The tensor is kept alive by `owner`; `kind` is its library."""

    owner: Any
    kind: str
    address: int
    shape: tuple[int, ...]
    size: int  # number of elements
    dtype: DataType
    device_type: DeviceType
    device_id: int
    is_contiguous: bool
    is_writable: bool

    @property
    def nbytes(self) -> int:
        return self.size * size_of(self.dtype)


def _of_torch(tensor: Any, what: str) -> Array:
    kind, index = CPU, 0
    if not tensor.is_cpu:
        if not tensor.is_cuda:
            raise InvalidUsage(f"{what} is on device {tensor.device}: move it to the CPU or a CUDA device")
        kind, index = GPU, tensor.device.index
        if index != sys.modules["torch"].cuda.current_device():
            raise InvalidUsage(f"{what} is on {tensor.device}, not on the current device: call torch.cuda.set_device()")
    return Array(tensor, "torch", tensor.data_ptr(), tensor.shape, tensor.numel(), to_dtype(tensor.dtype), kind, index,
                 tensor.is_contiguous(), True)  # fmt: skip


def _of_numpy(tensor: Any, what: str) -> Array:
    dtype, flags = tensor.dtype, tensor.flags
    if not dtype.isnative:
        raise InvalidUsage(f"{what} has the other byte order: convert it by astype({dtype.newbyteorder()!r})")
    return Array(tensor, "numpy", buffer_address(tensor), tensor.shape, tensor.size, to_dtype(dtype),
                 CPU, 0, flags.c_contiguous, flags.writeable)  # fmt: skip


def _is_contiguous(shape: Sequence[int], strides: Sequence[float]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _of_dlpack(tensor: Any, what: str) -> Array:
    address, shape, strides, name, device, device_id = describe_dlpack(tensor)
    if device not in _DLPACK_DEVICES:
        raise InvalidUsage(f"{what} is on a device that is neither the CPU nor a CUDA GPU: move it")
    kind = "cupy" if _is(tensor, "cupy", "ndarray") else "dlpack"
    contiguous = 0 in shape or _is_contiguous(shape, strides)
    is_writable = not type(tensor).__module__.startswith("jax")  # jax shares its arrays, but never changes one
    return Array(tensor, kind, address, shape, math.prod(shape), to_dtype(name), _DLPACK_DEVICES[device], device_id,
                 contiguous, is_writable)  # fmt: skip


_CUDA_TYPES = {"b": "int", "i": "int", "u": "uint", "f": "float"}


def _of_cuda_interface(tensor: Any, what: str) -> Array:
    interface = tensor.__cuda_array_interface__
    kind, bytes_per_element = interface["typestr"][1], int(interface["typestr"][2:])
    dtype = to_dtype(f"{_CUDA_TYPES.get(kind, kind)}{8 * bytes_per_element}")
    address, readonly = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    contiguous = not strides or 0 in shape or _is_contiguous(shape, [s / bytes_per_element for s in strides])
    return Array(tensor, "cuda", address, shape, math.prod(shape), dtype, GPU, UNKNOWN_DEVICE, contiguous,
                 not readonly)  # fmt: skip


def _is(tensor: Any, library: str, name: str) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(tensor, getattr(module, name, ()))


def _of_any(tensor: Any, what: str) -> Array:
    if hasattr(tensor, "__dlpack__"):
        return _of_dlpack(tensor, what)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _of_cuda_interface(tensor, what)
    raise InvalidUsage(
        f"{what} is a {type(tensor).__name__}: pass a torch tensor, a numpy array, or an object with __dlpack__ or "
        "__cuda_array_interface__"
    )


# The function that reads arrays of a type; finding it out anew would take longer than a short call.
_readers: dict[type, Callable[[Any, str], Array]] = {}


def _find_reader(tensor: Any) -> Callable[[Any, str], Array]:
    known = ((_of_torch, "torch", "Tensor"), (_of_numpy, "numpy", "ndarray"))
    reader = next((read for read, library, name in known if _is(tensor, library, name)), _of_any)
    _readers[type(tensor)] = reader
    return reader


def view(tensor: Any, what: str = "tensor") -> Array:
    """The Array of a tensor, which `what` names in errors.

    Raises InvalidUsage for what is no array, and for elements that are not contiguous.
    """
    array = (_readers.get(type(tensor)) or _find_reader(tensor))(tensor, what)
    if not array.is_contiguous:
        raise InvalidUsage(f"{what} is not contiguous: pass tensor.contiguous() or numpy.ascontiguousarray(tensor)")
    return array


def view_output(tensor: Any) -> Array:
    """The same for the argument `out`; raises InvalidUsage for an array that is read-only, too."""
    array = view(tensor, "out")
    require_writable(array)
    return array


def require_writable(array: Array) -> None:
    if not array.is_writable:
        raise InvalidUsage("out is read-only: pass an array that can be written")


def empty_like(array: Array, shape: tuple[int, ...], dtype: DataType | None = None) -> Array:
    """A new array of the same library and device, and of the same type or of `dtype`, where torch or ml_dtypes has it.

    Raises InvalidUsage where that library is not known.
    """
    owner, kind = array.owner, array.kind
    if kind not in ("torch", "numpy", "cupy"):
        raise InvalidUsage(f"cannot make a result for a {type(owner).__name__}: pass out=")
    if dtype is None or dtype is array.dtype:
        dtype, element = array.dtype, owner.dtype
    else:
        element = getattr(sys.modules["torch" if kind == "torch" else "ml_dtypes"], dtype.name)
    if kind == "torch":
        result = owner.new_empty(shape, dtype=element)
        address = result.data_ptr()
    elif kind == "numpy":
        result = sys.modules[kind].empty(shape, element)
        address = buffer_address(result)
    else:
        return view(sys.modules[kind].empty(shape, element))
    return Array(result, kind, address, shape, math.prod(shape), dtype, array.device_type, array.device_id,
                 True, True)  # fmt: skip


def parts_of(array: Array, counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """(address, bytes, r) of the part of each rank r: the parts of counts[r] entries of the first dimension."""
    bytes_per_entry = math.prod(array.shape[1:]) * size_of(array.dtype)
    parts, address = [], array.address
    for rank, count in enumerate(counts):
        parts.append((address, count * bytes_per_entry, rank))
        address += count * bytes_per_entry
    return parts


def stream_of(array: Array, stream: Any) -> int:
    """The CUDA stream of a call as an integer: the given one, or the current one of the array's library."""
    if array.device_type is CPU:
        if stream:
            raise InvalidUsage("stream= is for GPU tensors; on CPU ranks a call returns when it is done")
        return 0
    if stream is None:
        if array.kind == "torch":
            # What current_stream() gives, without an object for it, which takes longer than the rest of a call.
            return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(array.device_id))
        if array.kind == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
        if array.kind == "cuda":  # 1 and 2 are the default streams of CUDA, too; None: nothing is to be waited for
            return int(array.owner.__cuda_array_interface__.get("stream") or 0)
        return 0
    return stream_handle(stream)


def stream_handle(stream: Any) -> int:
    """The handle of a stream of torch or cupy."""
    for attribute in ("cuda_stream", "ptr"):
        stream = getattr(stream, attribute, stream)
    if not isinstance(stream, int):
        raise InvalidUsage(f"stream is a {type(stream).__name__}: pass a stream of torch or cupy, or its handle")
    return stream
