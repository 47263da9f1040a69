"""Arrays of other libraries as addresses with a type, a shape and a device, without importing these libraries."""

import dataclasses
import math
import sys
from typing import Any

from ._mscclpp import DataType, DeviceType, describe_dlpack, size_of
from .dtypes import to_dtype
from .errors import InvalidUsage

_DLPACK_DEVICES = {1: DeviceType.CPU, 2: DeviceType.GPU, 3: DeviceType.CPU, 13: DeviceType.GPU}


@dataclasses.dataclass(frozen=True)
class Array:
    """What a call needs to know of a tensor. The tensor is kept alive by `owner`; `kind` is its library."""

    owner: Any
    kind: str
    address: int
    shape: tuple
    dtype: DataType
    device_type: DeviceType
    device_id: int

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * size_of(self.dtype)


def _is(tensor, library, name):
    module = sys.modules.get(library)
    return module is not None and isinstance(tensor, getattr(module, name, ()))


def _of_torch(tensor, what):
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidUsage(f"{what} is on device {tensor.device}: move it to the CPU or a CUDA device")
    on_gpu = tensor.device.type == "cuda"
    if on_gpu and tensor.device.index != sys.modules["torch"].cuda.current_device():
        raise InvalidUsage(f"{what} is on {tensor.device}, not on the current device: call torch.cuda.set_device()")
    return (
        Array(tensor, "torch", tensor.data_ptr(), tuple(tensor.shape), to_dtype(tensor.dtype),
              DeviceType.GPU if on_gpu else DeviceType.CPU, tensor.device.index if on_gpu else 0),
        tensor.is_contiguous(),
        True,
    )  # fmt: skip


def _of_numpy(tensor, what):
    if not tensor.dtype.isnative:
        raise InvalidUsage(f"{what} has the other byte order: convert it by astype({tensor.dtype.newbyteorder()!r})")
    array = Array(tensor, "numpy", tensor.ctypes.data, tensor.shape, to_dtype(tensor.dtype), DeviceType.CPU, 0)
    return array, tensor.flags.c_contiguous, tensor.flags.writeable


def _is_contiguous(shape, strides):
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _of_dlpack(tensor, what):
    address, shape, strides, name, device, device_id = describe_dlpack(tensor)
    if device not in _DLPACK_DEVICES:
        raise InvalidUsage(f"{what} is on a device that is neither the CPU nor a CUDA GPU: move it")
    kind = "cupy" if _is(tensor, "cupy", "ndarray") else "dlpack"
    array = Array(tensor, kind, address, shape, to_dtype(name), _DLPACK_DEVICES[device], device_id)
    is_writable = not type(tensor).__module__.startswith("jax")  # jax shares its arrays, but never changes one
    return array, 0 in shape or _is_contiguous(shape, strides), is_writable


_CUDA_TYPES = {"b": "int", "i": "int", "u": "uint", "f": "float"}


def _of_cuda_interface(tensor, what):
    interface = tensor.__cuda_array_interface__
    kind, bytes_per_element = interface["typestr"][1], int(interface["typestr"][2:])
    dtype = to_dtype(f"{_CUDA_TYPES.get(kind, kind)}{8 * bytes_per_element}")
    address, readonly = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    contiguous = not strides or 0 in shape or _is_contiguous(shape, [s / bytes_per_element for s in strides])
    return Array(tensor, "cuda", address, shape, dtype, DeviceType.GPU, -1), contiguous, not readonly


def view(tensor, what="tensor", writable=False):
    """The Array of a tensor, which `what` names in errors.

    Raises InvalidUsage for what is no array, for elements that are not contiguous, and, if `writable` is asked for,
    for an array that is read-only.
    """
    if _is(tensor, "torch", "Tensor"):
        array, contiguous, is_writable = _of_torch(tensor, what)
    elif _is(tensor, "numpy", "ndarray"):
        array, contiguous, is_writable = _of_numpy(tensor, what)
    elif hasattr(tensor, "__dlpack__"):
        array, contiguous, is_writable = _of_dlpack(tensor, what)
    elif hasattr(tensor, "__cuda_array_interface__"):
        array, contiguous, is_writable = _of_cuda_interface(tensor, what)
    else:
        raise InvalidUsage(
            f"{what} is a {type(tensor).__name__}: pass a torch tensor, a numpy array, or an object with __dlpack__ or "
            "__cuda_array_interface__"
        )
    if not contiguous:
        raise InvalidUsage(f"{what} is not contiguous: pass tensor.contiguous() or numpy.ascontiguousarray(tensor)")
    if writable and not is_writable:
        raise InvalidUsage(f"{what} is read-only: pass an array that can be written")
    return array


def empty_like(array, shape):
    """A new array of the same library, type and device. Raises InvalidUsage where that library is not known."""
    owner = array.owner
    if array.kind == "torch":
        return view(owner.new_empty(shape))
    if array.kind in ("numpy", "cupy"):
        return view(sys.modules[array.kind].empty(shape, owner.dtype))
    raise InvalidUsage(f"cannot make a result for a {type(owner).__name__}: pass out=")


def stream_of(array, stream):
    """The CUDA stream of a call as an integer: the given one, or the current one of the array's library."""
    if array.device_type == DeviceType.CPU:
        if stream:
            raise InvalidUsage("stream= is for GPU tensors; on CPU ranks a call returns when it is done")
        return 0
    if stream is None:
        if array.kind == "torch":
            return sys.modules["torch"].cuda.current_stream(array.owner.device).cuda_stream
        return sys.modules["cupy"].cuda.get_current_stream().ptr if array.kind == "cupy" else 0
    for attribute in ("cuda_stream", "ptr"):
        stream = getattr(stream, attribute, stream)
    if not isinstance(stream, int):
        raise InvalidUsage(f"stream is a {type(stream).__name__}: pass a stream of torch or cupy, or its handle")
    return stream
