"""Element types and operators of other libraries as DataType and ReduceOp."""

import functools

from ._mscclpp import DataType, ReduceOp, size_of
from .errors import InvalidUsage


@functools.lru_cache
def to_dtype(dtype):
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
def to_reduce_op(op):
    """The ReduceOp of a name, such as "sum". Raises InvalidUsage for others."""
    if isinstance(op, ReduceOp):
        return op
    found = ReduceOp.__members__.get(op.upper()) if isinstance(op, str) else None
    if found is None or found == ReduceOp.NOP:
        raise InvalidUsage(f"unknown operator {op!r}: use 'sum', 'prod', 'max', 'min', 'avg' or a mscclpp.ReduceOp")
    return found
