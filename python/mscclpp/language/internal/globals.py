"""The program that is being written: that of the innermost `with CollectiveProgram(...)` of this thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...errors import InvalidUsage
from .origin import origin

if TYPE_CHECKING:
    from ..program import CollectiveProgram


class _Current(threading.local):
    def __init__(self) -> None:
        self.programs: list[CollectiveProgram] = []


_current = _Current()


def enter_program(program: CollectiveProgram) -> None:
    """Makes a program the one that is written. Raises InvalidUsage inside of another one."""
    if _current.programs:
        raise InvalidUsage(f"{origin()}: another program is being written: programs are not nested")
    _current.programs.append(program)


def leave_program() -> None:
    """Ends the program that is written."""
    _current.programs.clear()


def get_program() -> CollectiveProgram:
    """The program that is written. Raises InvalidUsage outside of one."""
    if not _current.programs:
        raise InvalidUsage(f"{origin()}: there is no program: write this inside of `with CollectiveProgram(...):`")
    return _current.programs[-1]
