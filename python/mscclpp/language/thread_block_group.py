"""Groups of thread blocks."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ..errors import InvalidUsage
from .internal.origin import origin


class ThreadBlockGroup:
    """Thread blocks that share an operation: each does an equal part of the bytes."""

    def __init__(self, tb_list: Sequence[int]) -> None:
        self.tb_list = list(tb_list)
        if not self.tb_list or len(set(self.tb_list)) != len(self.tb_list):
            raise InvalidUsage(f"{origin()}: a group has thread blocks, each of them once; not {self.tb_list}")

    def numtb(self) -> int:
        """How many blocks it has."""
        return len(self.tb_list)


def blocks_of(tb: int | None, tb_group: ThreadBlockGroup | None) -> list[int]:
    """The blocks that an operation names. Raises InvalidUsage unless one of the two is given."""
    if tb is not None and tb_group is None:
        try:
            return [operator.index(tb)]
        except TypeError:
            raise InvalidUsage(f"{origin()}: tb is {tb!r}; it is the number of a thread block") from None
    if tb_group is not None and tb is None:
        return tb_group.tb_list
    raise InvalidUsage(f"{origin()}: pass tb=, a thread block, or tb_group=, several that share the operation")


__all__ = ["ThreadBlockGroup"]
