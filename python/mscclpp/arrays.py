"""Arrays of other libraries as addresses with a type, a shape and a device, without importing these libraries."""

import dataclasses
import math
import sys
from typing import Any

from ._mscclpp import DataType, DeviceType, describe_dlpack
from .dtypes import to_dtype
from .errors import InvalidUsage

_DLPACK_DEVICES = {1: DeviceType.CPU, 2: DeviceType.GPU, 3: DeviceType.CPU, 13: DeviceType.GPU}

UNKNOWN_DEVICE = -1  # of an interface that does not tell


@dataclasses.dataclass(slots=True)
class Array:
    """What a call needs to know of a tensor. The tensor is kept alive by `owner`; `kind` is its library."""

    owner: Any
    kind: str
    address: int
    shape: tuple
    dtype: DataType
    device_type: DeviceType
    device_id: int
    is_contiguous: bool
    is_writable: bool

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self.shape)


def _is(tensor, library, name):
    module = sys.modules.get(library)
    return module is not None and isinstance(tensor, getattr(module, name, ()))


def _of_torch(tensor, what):
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidUsage(f"{what} is on device {tensor.device}: move it to the CPU or a CUDA device")
    on_gpu = tensor.device.type == "cuda"
    if on_gpu and tensor.device.index != sys.modules["torch"].cuda.current_device():
        raise InvalidUsage(f"{what} is on {tensor.device}, not on the current device: call torch.cuda.set_device()")
    device = (DeviceType.GPU, tensor.device.index) if on_gpu else (DeviceType.CPU, 0)
    dtype = to_dtype(tensor.dtype)
    return Array(tensor, "torch", tensor.data_ptr(), tuple(tensor.shape), dtype, *device, tensor.is_contiguous(), True)


def _of_numpy(tensor, what):
    if not tensor.dtype.isnative:
        raise InvalidUsage(f"{what} has the other byte order: convert it by astype({tensor.dtype.newbyteorder()!r})")
    address, _ = tensor.__array_interface__["data"]
    flags = tensor.flags
    place = (DeviceType.CPU, 0, flags.c_contiguous, flags.writeable)
    return Array(tensor, "numpy", address, tensor.shape, to_dtype(tensor.dtype), *place)


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
    contiguous = 0 in shape or _is_contiguous(shape, strides)
    is_writable = not type(tensor).__module__.startswith("jax")  # jax shares its arrays, but never changes one
    place = (_DLPACK_DEVICES[device], device_id, contiguous, is_writable)
    return Array(tensor, kind, address, shape, to_dtype(name), *place)


_CUDA_TYPES = {"b": "int", "i": "int", "u": "uint", "f": "float"}


def _of_cuda_interface(tensor, what):
    interface = tensor.__cuda_array_interface__
    kind, bytes_per_element = interface["typestr"][1], int(interface["typestr"][2:])
    dtype = to_dtype(f"{_CUDA_TYPES.get(kind, kind)}{8 * bytes_per_element}")
    address, readonly = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    contiguous = not strides or 0 in shape or _is_contiguous(shape, [s / bytes_per_element for s in strides])
    return Array(tensor, "cuda", address, shape, dtype, DeviceType.GPU, UNKNOWN_DEVICE, contiguous, not readonly)


def view(tensor, what="tensor"):
    """The Array of a tensor, which `what` names in errors.

    Raises InvalidUsage for what is no array, and for elements that are not contiguous.
    """
    if _is(tensor, "torch", "Tensor"):
        array = _of_torch(tensor, what)
    elif _is(tensor, "numpy", "ndarray"):
        array = _of_numpy(tensor, what)
    elif hasattr(tensor, "__dlpack__"):
        array = _of_dlpack(tensor, what)
    elif hasattr(tensor, "__cuda_array_interface__"):
        array = _of_cuda_interface(tensor, what)
    else:
        raise InvalidUsage(
            f"{what} is a {type(tensor).__name__}: pass a torch tensor, a numpy array, or an object with __dlpack__ or "
            "__cuda_array_interface__"
        )
    if not array.is_contiguous:
        raise InvalidUsage(f"{what} is not contiguous: pass tensor.contiguous() or numpy.ascontiguousarray(tensor)")
    return array


def view_output(tensor):
    """The same for the argument `out`; raises InvalidUsage for an array that is read-only, too."""
    array = view(tensor, "out")
    require_writable(array)
    return array


def require_writable(array):
    if not array.is_writable:
        raise InvalidUsage("out is read-only: pass an array that can be written")


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
    return stream_handle(stream)


def stream_handle(stream):
    """The handle of a stream of torch or cupy."""
    for attribute in ("cuda_stream", "ptr"):
        stream = getattr(stream, attribute, stream)
    if not isinstance(stream, int):
        raise InvalidUsage(f"stream is a {type(stream).__name__}: pass a stream of torch or cupy, or its handle")
    return stream
