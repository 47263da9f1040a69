"""Matrix multiplications of arrays with a collective inside."""

from __future__ import annotations

from typing import Any

from ._mscclpp import DataType, DeviceType, FusedGemms, GemmCollective
from .arrays import UNKNOWN_DEVICE, Array, empty_like, stream_of, view, view_output
from .errors import InvalidUsage


class ArrayGemms:
    """The fused multiplications of a CommGroup.

    Every rank calls them, in the same order, with arrays of bfloat16 as of ArrayCollectives. input: (..., depth), with
    at least two dimensions; weight: (width, depth), as torch.nn.Linear has it; a product is input * transpose of
    weight, and all dimensions but the last are its rows. The other ranks' inputs have the same shape but for the depth
    (gemm_all_reduce, gemm_reduce_scatter), and their weights but for the width (all_gather_gemm). `out` does not
    overlap the operands. The first call with a width (a depth: all_gather_gemm), or with more rows than before,
    allocates scratch on all ranks. docs/fusing.md.

    On GPUs a call is enqueued on `stream`: one kernel, which uses the whole GPU, or a GEMM of cuBLAS and a collective
    where a model estimates that to be faster. Calls of a group do not overlap in time: use one stream. Calls raise
    InvalidUsage for arrays that do not fit, RemoteError if another rank has failed, and Timeout.
    """

    nranks: int

    def fused_gemms(self, device_type: DeviceType) -> FusedGemms:
        raise NotImplementedError

    def gemm_all_reduce(self, input: Any, weight: Any, out: Any = None, stream: Any = None) -> Any:
        """The sum of the products over the ranks, the same bits on all of them: (..., width)."""
        return self._multiply(GemmCollective.all_reduce, input, weight, out, stream)

    def gemm_reduce_scatter(self, input: Any, weight: Any, out: Any = None, stream: Any = None) -> Any:
        """Of that sum, rank r gets part r of the first dimension: (ranks * d, ..., depth) gives (d, ..., width)."""
        return self._multiply(GemmCollective.reduce_scatter, input, weight, out, stream)

    def all_gather_gemm(self, input: Any, weight: Any, out: Any = None, stream: Any = None) -> Any:
        """The product of the inputs of all ranks: (d, ..., depth) gives (ranks * d, ..., width)."""
        return self._multiply(GemmCollective.all_gather, input, weight, out, stream)

    def _multiply(self, collective: GemmCollective, input: Any, weight: Any, out: Any, stream: Any) -> Any:
        source, factor = view(input, "input"), view(weight, "weight")
        first, *others = self._shape(collective, source, factor)
        width, depth = factor.shape
        shape = (first, *others, width)
        target = empty_like(source, shape) if out is None else view_output(out)
        if tuple(target.shape) != shape:
            raise InvalidUsage(f"out has shape {tuple(target.shape)}, but the result has shape {shape}")
        for name, array in (("input", source), ("weight", factor), ("out", target)):
            if array.dtype is not DataType.bfloat16:
                raise InvalidUsage(f"{name} has elements of {array.dtype.name}: convert it to bfloat16")
            ids = (array.device_id, source.device_id)
            if array.device_type is not source.device_type or (ids[0] != ids[1] and UNKNOWN_DEVICE not in ids):
                raise InvalidUsage(f"{name} and input are on different devices: move one")
        rows = source.size // depth * (self.nranks if collective is GemmCollective.all_gather else 1)
        gemms = self.fused_gemms(source.device_type)
        gemms.run(collective, source.address, factor.address, target.address, rows, width, depth,
                  stream_of(source, stream))  # fmt: skip
        return target.owner

    def _shape(self, collective: GemmCollective, source: Array, factor: Array) -> tuple[int, ...]:
        """The shape of the result but for the last dimension."""
        if len(source.shape) < 2 or len(factor.shape) != 2 or factor.size == 0 or source.shape[-1] != factor.shape[1]:
            raise InvalidUsage(
                f"input has shape {tuple(source.shape)} and weight {tuple(factor.shape)}; they are (..., depth), with "
                "two dimensions or more, and (width, depth), with at least one element"
            )
        first, *others = source.shape[:-1]
        if collective is GemmCollective.all_gather:
            return (self.nranks * first, *others)
        if collective is GemmCollective.reduce_scatter:
            if first % self.nranks != 0:
                raise InvalidUsage(
                    f"the first dimension of shape {tuple(source.shape)} is not divisible by the {self.nranks} ranks, "
                    "which have parts of one size"
                )
            return (first // self.nranks, *others)
        return (first, *others)
