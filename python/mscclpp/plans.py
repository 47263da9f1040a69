"""The names of execution plans, which this release does not run."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from .errors import InvalidUsage


class PacketType(enum.Enum):
    """The packets that a plan moves data in."""

    LL8 = 0
    LL16 = 1


def _refuse(what: str) -> NoReturn:
    raise InvalidUsage(
        f"{what}: execution plans are not part of this release. Use the library's algorithms "
        "(AlgorithmCollectionBuilder().build_default_algorithms), or compile a kernel of your own (compile_native)"
    )


def compile(algo: Any, algo_spec: Any = None, rank: int | None = None, **options: Any) -> NoReturn:
    """Would make an Algorithm of a program in MSCCL++'s language. Raises InvalidUsage: there are no plans yet."""
    _refuse("compile()")


class ExecutionPlan:
    """A plan in a file, as seen by a rank. Raises InvalidUsage: there are no plans yet."""

    def __init__(self, path: str, rank: int) -> None:
        _refuse("ExecutionPlan()")


class Executor:
    """What runs plans on a communicator. Raises InvalidUsage: there are no plans yet."""

    def __init__(self, communicator: Any) -> None:
        _refuse("Executor()")

    def execute(self, rank: int, send_buff: int, recv_buff: int, send_buff_size: int, recv_buff_size: int,
                data_type: Any, plan: ExecutionPlan, stream: int,
                packet_type: PacketType = PacketType.LL16) -> None:  # fmt: skip
        """Would enqueue a plan on a stream. Buffers are addresses, sizes are bytes."""
        _refuse("Executor.execute()")

    def reset(self) -> None:
        """Would release what execute() keeps between calls."""
        _refuse("Executor.reset()")
