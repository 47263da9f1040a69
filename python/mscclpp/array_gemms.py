"""Matrix multiplications of arrays with a collective inside."""

from __future__ import annotations

from typing import Any

from ._mscclpp import DataType, DeviceType, FusedGemms, GemmCollective
from .arrays import UNKNOWN_DEVICE, Array, empty_like, stream_of, view, view_output
from .errors import InvalidUsage


class ArrayGemms:
    """The fused multiplications of a CommGroup.

    Every rank calls them, in the same order, with arrays as of ArrayCollectives. input: (..., depth), with at least two
    dimensions; weight: (width, depth), as torch.nn.Linear has it; a product is input * transpose of weight, and all
    dimensions but the last are its rows. The other ranks' inputs have the same shape but for the depth
    (gemm_all_reduce, gemm_reduce_scatter), and their weights but for the width (all_gather_gemm). `out` does not
    overlap the operands. The first call with a width (a depth: all_gather_gemm), or with more rows than before,
    allocates scratch on all ranks, for each type of operands, and so does the first whose depth (width:
    all_gather_gemm) is rounded up to another power of two: on all ranks or on none, or calls time out. docs/fusing.md.

    On all ranks, input and weight are of bfloat16, without scales, or of float8_e4m3fn, with one float32 for each row:
    input_scales (rows,), (rows, 1) or (..., 1), weight_scales (width,), (width, 1) or (1, width). Elements of a product
    are multiplied by the scales of their row of the input and of the weight. The result is of bfloat16. use_fast_accum:
    as of torch._scaled_mm, on all ranks: faster, with fewer bits of sums (GemmLayer::fastAccumulation).

    On GPUs a call is enqueued on `stream`: one kernel, which uses the whole GPU, or, where a model estimates that to be
    faster, a GEMM of cuBLAS and a collective, or copies beside GEMMs of cuBLAS (FusedGemms.form()). Calls of a group do
    not overlap in time: use one stream. Calls raise InvalidUsage for arrays that do not fit, RemoteError if another
    rank has failed, and Timeout.
    """

    nranks: int

    def fused_gemms(self, device_type: DeviceType) -> FusedGemms:
        raise NotImplementedError

    def gemm_all_reduce(self, input: Any, weight: Any, out: Any = None, stream: Any = None,
                        input_scales: Any = None, weight_scales: Any = None,
                        use_fast_accum: bool = False) -> Any:  # fmt: skip
        """The sum of the products over the ranks, the same bits on all of them: (..., width)."""
        return self._multiply(GemmCollective.all_reduce, input, weight, out, stream, input_scales, weight_scales,
                              use_fast_accum)  # fmt: skip

    def gemm_reduce_scatter(self, input: Any, weight: Any, out: Any = None, stream: Any = None,
                            input_scales: Any = None, weight_scales: Any = None,
                            use_fast_accum: bool = False) -> Any:  # fmt: skip
        """Of that sum, rank r gets part r of the first dimension: (ranks * d, ..., depth) gives (d, ..., width)."""
        return self._multiply(GemmCollective.reduce_scatter, input, weight, out, stream, input_scales, weight_scales,
                              use_fast_accum)  # fmt: skip

    def all_gather_gemm(self, input: Any, weight: Any, out: Any = None, stream: Any = None,
                        input_scales: Any = None, weight_scales: Any = None,
                        use_fast_accum: bool = False) -> Any:  # fmt: skip
        """The product of the inputs of all ranks: (d, ..., depth) gives (ranks * d, ..., width)."""
        return self._multiply(GemmCollective.all_gather, input, weight, out, stream, input_scales, weight_scales,
                              use_fast_accum)  # fmt: skip

    def _multiply(self, collective: GemmCollective, input: Any, weight: Any, out: Any, stream: Any,
                  input_scales: Any, weight_scales: Any, use_fast_accum: bool) -> Any:  # fmt: skip
        source, factor = view(input, "input"), view(weight, "weight")
        first, *others = self._shape(collective, source, factor)
        width, depth = factor.shape
        shape = (first, *others, width)
        _require_operands(source, factor, (input_scales, weight_scales), use_fast_accum)
        target = empty_like(source, shape, DataType.bfloat16) if out is None else view_output(out)
        if tuple(target.shape) != shape:
            raise InvalidUsage(f"out has shape {tuple(target.shape)}, but the result has shape {shape}")
        if target.dtype is not DataType.bfloat16:
            raise InvalidUsage(f"out has elements of {target.dtype.name}, but the result has bfloat16: convert it")
        _require_device("out", target, source)
        is_gathering = collective is GemmCollective.all_gather
        own_rows = source.size // depth
        rows = own_rows * (self.nranks if is_gathering else 1)
        addresses = (0, 0)
        if source.dtype is not DataType.bfloat16:
            shapes = ((own_rows,), (own_rows, 1), (*source.shape[:-1], 1))
            addresses = (
                _address_of("input_scales", input_scales, source, shapes, "input"),
                _address_of("weight_scales", weight_scales, source, ((width,), (width, 1), (1, width)), "weight"),
            )
        gemms = self.fused_gemms(source.device_type)
        gemms.run(collective, source.address, factor.address, target.address, rows, width, depth,
                  stream_of(source, stream), source.dtype, *addresses, use_fast_accum)  # fmt: skip
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


def _require_operands(source: Array, factor: Array, scales: tuple[Any, ...], use_fast_accum: bool) -> None:
    """Whether types and devices of the operands fit, and scales are given where there have to be."""
    dtype = source.dtype
    if dtype not in (DataType.bfloat16, DataType.float8_e4m3fn):
        raise InvalidUsage(f"input has elements of {dtype.name}: convert it and weight to bfloat16 or float8_e4m3fn")
    if factor.dtype is not dtype:
        raise InvalidUsage(f"weight has elements of {factor.dtype.name}, and input of {dtype.name}: convert one")
    _require_device("weight", factor, source)
    if dtype is DataType.bfloat16 and any(each is not None for each in scales):
        raise InvalidUsage("operands of bfloat16 have no scales: leave input_scales and weight_scales out")
    if dtype is DataType.bfloat16 and use_fast_accum:
        raise InvalidUsage("operands of bfloat16 are summed up in fp32: leave use_fast_accum out")
    if dtype is not DataType.bfloat16 and any(each is None for each in scales):
        raise InvalidUsage(f"operands of {dtype.name} need scales: pass input_scales and weight_scales, of float32")


def _require_device(name: str, array: Array, source: Array) -> None:
    ids = (array.device_id, source.device_id)
    if array.device_type is not source.device_type or (ids[0] != ids[1] and UNKNOWN_DEVICE not in ids):
        raise InvalidUsage(f"{name} and input are on different devices: move one")


def _address_of(name: str, scales: Any, source: Array, shapes: tuple[tuple[int, ...], ...], whose: str) -> int:
    """The address of scales for the rows of `whose`, which have one of the shapes."""
    array = view(scales, name)
    if array.dtype is not DataType.float32:
        raise InvalidUsage(f"{name} are not float32: convert them")
    _require_device(name, array, source)
    if tuple(array.shape) not in shapes:
        raise InvalidUsage(
            f"{name} have shape {tuple(array.shape)}: pass {shapes[0]}, one for each row of {whose}, repeated if there "
            "is one for all"
        )
    return array.address
