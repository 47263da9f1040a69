"""Element types and operators of other libraries as DataType and ReduceOp."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ._mscclpp import DataType, ReduceOp, size_of
from .errors import InvalidUsage


@functools.lru_cache
def to_dtype(dtype: Any) -> DataType:
    """The DataType of a name ("float16"), or of a type of torch, numpy, ml_dtypes, cupy or jax.

    Raises InvalidUsage for a type that the collectives do not support.
    """
    if isinstance(dtype, DataType):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    found = DataType.__members__.get(name)
    if found is None or size_of(found) == 0:
        names = ", ".join(member for member, value in DataType.__members__.items() if size_of(value) > 0)
        raise InvalidUsage(f"element type {dtype} is not supported: convert the array to one of {names}")
    return found


@functools.lru_cache
def to_reduce_op(op: str | ReduceOp) -> ReduceOp:
    """The ReduceOp of a name, such as "sum". Raises InvalidUsage for others."""
    if isinstance(op, ReduceOp):
        return op
    found = ReduceOp.__members__.get(op.upper()) if isinstance(op, str) else None
    if found is None or found == ReduceOp.NOP:
        raise InvalidUsage(f"unknown operator {op!r}: use 'sum', 'prod', 'max', 'min', 'avg' or a mscclpp.ReduceOp")
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction whose contributions are multiplied by a factor, which each rank has of its own.

    op: a name or ReduceOp. factor: a number; or an array of one element, of the type and device of the tensor, which
    the call reads when it runs. Products are rounded to the type of the elements.
    """

    op: str | ReduceOp
    factor: Any


def pre_mul_sum(factor: Any) -> Reduction:
    """The `op` of a sum of the ranks' elements, each multiplied by the factor of its rank: Reduction("sum", factor)."""
    return Reduction("sum", factor)
