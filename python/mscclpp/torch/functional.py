"""Collectives with gradients. Each takes a tensor and the name of a group, as register() returned it.

All ranks call them, in the same order, in the backward pass too. Results are new tensors, of the shapes that
CommGroup's methods have. The loss is the sum of the losses of all ranks. The operators themselves have no gradient:
they serve where none is needed, and write into tensors that are given.
"""

import torch

from ..errors import InvalidUsage

_ops = torch.ops.mscclpp


def _require_linear(name, op):
    if op not in ("sum", "avg"):
        raise InvalidUsage(f"{name} with op={op!r} has no gradient: use 'sum' or 'avg', or torch.ops.mscclpp.{name}")


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group, op):
        ctx.group, ctx.op = group, op
        return _ops.all_reduce(tensor, group, op)

    @staticmethod
    def backward(ctx, gradient):
        return _ops.all_reduce(gradient, ctx.group, ctx.op), None, None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group, ctx.shape = group, tensor.shape
        return _ops.all_gather(tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return _ops.reduce_scatter(gradient, ctx.group).reshape(ctx.shape), None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group, op):
        ctx.group = group
        result = _ops.reduce_scatter(tensor, group, op)
        ctx.factor = result.shape[0] / tensor.shape[0] if op == "avg" and tensor.shape[0] else 1.0
        return result

    @staticmethod
    def backward(ctx, gradient):
        return _ops.all_gather(gradient * ctx.factor, ctx.group), None, None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return _ops.all_to_all(tensor, group)

    @staticmethod
    def backward(ctx, gradient):
        return _ops.all_to_all(gradient, ctx.group), None


class _GemmAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, group):
        return _ops.gemm_all_reduce(*_save(ctx, input, weight, group))

    @staticmethod
    def backward(ctx, gradient):
        return *_gradients(ctx, _ops.all_reduce(gradient, ctx.group)), None


class _GemmReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, group):
        return _ops.gemm_reduce_scatter(*_save(ctx, input, weight, group))

    @staticmethod
    def backward(ctx, gradient):
        return *_gradients(ctx, _ops.all_gather(gradient, ctx.group)), None


class _AllGatherGemm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, group):
        return _ops.all_gather_gemm(*_save(ctx, input, weight, group))

    @staticmethod
    def backward(ctx, gradient):
        input, weight = ctx.saved_tensors
        of_input = of_weight = None
        if ctx.needs_input_grad[0]:
            of_input = _ops.gemm_reduce_scatter(gradient, weight.t(), ctx.group)
        if ctx.needs_input_grad[1]:
            of_weight = _of_weight(gradient, _ops.all_gather(input, ctx.group))
        return of_input, of_weight, None


def _save(ctx, input, weight, group):
    """Keeps the arguments of a fused GEMM for its backward pass, and returns them."""
    ctx.save_for_backward(input, weight)
    ctx.group = group
    return input, weight, group


def _gradients(ctx, gradient):
    """Those of input and weight, from that of a product."""
    input, weight = ctx.saved_tensors
    return (
        gradient @ weight if ctx.needs_input_grad[0] else None,
        _of_weight(gradient, input) if ctx.needs_input_grad[1] else None,
    )


def _of_weight(gradient, input):
    return gradient.flatten(0, -2).t() @ input.flatten(0, -2)


def all_reduce(tensor: torch.Tensor, group: str, op: str = "sum") -> torch.Tensor:
    """Reduces over all ranks, which all get the same bits. op: "sum" or "avg"."""
    _require_linear("all_reduce", op)
    return _AllReduce.apply(tensor, group, op)


def all_gather(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """The tensors of all ranks: (d, ...) gives (ranks * d, ...)."""
    return _AllGather.apply(tensor, group)


def reduce_scatter(tensor: torch.Tensor, group: str, op: str = "sum") -> torch.Tensor:
    """Reduces over all ranks, and rank r gets part r: (ranks * d, ...) gives (d, ...). op: "sum" or "avg"."""
    _require_linear("reduce_scatter", op)
    return _ReduceScatter.apply(tensor, group, op)


def all_to_all(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """Part r goes to rank r, into the part of its result for this rank: (ranks * d, ...) keeps its shape."""
    return _AllToAll.apply(tensor, group)


def gemm_all_reduce(input: torch.Tensor, weight: torch.Tensor, group: str) -> torch.Tensor:
    """The sum over the ranks of input * transpose of weight, of bfloat16: (..., depth) and (width, depth) give
    (..., width)."""
    return _GemmAllReduce.apply(input, weight, group)


def gemm_reduce_scatter(input: torch.Tensor, weight: torch.Tensor, group: str) -> torch.Tensor:
    """Of that sum, rank r gets part r of the first dimension: (ranks * d, ..., depth) gives (d, ..., width)."""
    return _GemmReduceScatter.apply(input, weight, group)


def all_gather_gemm(input: torch.Tensor, weight: torch.Tensor, group: str) -> torch.Tensor:
    """The product of the inputs of all ranks: (d, ..., depth) gives (ranks * d, ..., width). Its backward pass is a
    gemm_reduce_scatter."""
    return _AllGatherGemm.apply(input, weight, group)
