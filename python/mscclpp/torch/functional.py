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


def all_reduce(tensor, group, op="sum"):
    """Reduces over all ranks, which all get the same bits. op: "sum" or "avg"."""
    _require_linear("all_reduce", op)
    return _AllReduce.apply(tensor, group, op)


def all_gather(tensor, group):
    """The tensors of all ranks: (d, ...) gives (ranks * d, ...)."""
    return _AllGather.apply(tensor, group)


def reduce_scatter(tensor, group, op="sum"):
    """Reduces over all ranks, and rank r gets part r: (ranks * d, ...) gives (d, ...). op: "sum" or "avg"."""
    _require_linear("reduce_scatter", op)
    return _ReduceScatter.apply(tensor, group, op)


def all_to_all(tensor, group):
    """Part r goes to rank r, into the part of its result for this rank: (ranks * d, ...) keeps its shape."""
    return _AllToAll.apply(tensor, group)
