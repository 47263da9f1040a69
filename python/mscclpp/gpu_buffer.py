"""GPU memory that peers can map, as an array."""

from __future__ import annotations

import math
from typing import Any

from ._mscclpp import GpuBufferGranularity, RawGpuBuffer, size_of
from .dtypes import to_dtype


class GpuBuffer:
    """A zero-filled array of the current GPU that peers can map: for torch.from_dlpack(), cupy.asarray() and the like.

    shape: a number or a tuple; dtype: a name, or a type of torch or numpy. Raises InvalidUsage in a build without CUDA.
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: Any = "float32",
                 granularity: GpuBufferGranularity = GpuBufferGranularity.MultiCastMinimum) -> None:  # fmt: skip
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = to_dtype(dtype)
        self.nbytes = math.prod(self.shape) * size_of(self.dtype)
        self._buffer = RawGpuBuffer(self.nbytes, granularity)
        self._array = self._buffer.to_dlpack(self.dtype.name, self.shape)

    def data_ptr(self) -> int:
        """The address, as an integer."""
        return self._buffer.data()

    def device_id(self) -> int:
        return self._buffer.device_id()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()
