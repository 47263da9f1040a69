"""Loops over the pieces of chunks."""

from __future__ import annotations

from types import TracebackType

from .._mscclpp import ProgramLoop
from .internal.globals import get_program
from .internal.origin import origin


class LoopIterationContext:
    """Operations inside of `with LoopIterationContext(unit, num_chunks):` run for successive pieces of their chunks.

    A turn handles `unit` bytes of `num_chunks` chunks. Loops are not nested.
    """

    def __init__(self, unit: int, num_chunks: int = 1) -> None:
        self.unit = unit
        self.num_chunks = num_chunks
        self._loop: ProgramLoop | None = None

    def __enter__(self) -> LoopIterationContext:
        self._loop = ProgramLoop(get_program()._recorder, self.unit, self.num_chunks, origin())
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._loop is not None:
            self._loop.end()


__all__ = ["LoopIterationContext"]
