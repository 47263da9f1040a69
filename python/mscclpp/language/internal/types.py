"""The types of MSCCL++'s language that programs name."""

from __future__ import annotations

import enum

from ..._mscclpp import BufferType, Chunk, SyncType
from ...errors import InvalidUsage
from ..utils import AlgoSpec, ReplicationPolicy


class ChannelType(enum.Enum):
    """How a channel reaches its peer."""

    none = "none"
    memory = "memory"
    port = "port"
    switch = "switch"


class ReduceOperationType(enum.Enum):
    """The operator of a reduction in a program. Plans have none: they reduce by the operator of each call."""

    sum = "sum"
    min = "min"
    max = "max"


def require_sum(reduce_op: ReduceOperationType) -> None:
    """Raises InvalidUsage for another operator than the default: calls say which one plans reduce by."""
    if reduce_op != ReduceOperationType.sum:
        raise InvalidUsage(
            f"reduce_op is {reduce_op}: the operator of a plan is that of each call; pass op= to execute() instead"
        )


__all__ = ["AlgoSpec", "BufferType", "ChannelType", "Chunk", "ReduceOperationType", "ReplicationPolicy", "SyncType"]
