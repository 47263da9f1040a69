"""The program that is being written: that of the innermost `with` statement of this thread, of each language."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from ...errors import InvalidUsage
from .origin import origin

if TYPE_CHECKING:
    from ..program import CollectiveProgram

Program = TypeVar("Program")


class CurrentProgram(threading.local, Generic[Program]):
    """What calls of a language refer to without an argument."""

    def __init__(self, language_class: str) -> None:
        self._class = language_class
        self._program: Program | None = None

    def enter(self, program: Program) -> None:
        """Makes a program the one that is written. Raises InvalidUsage inside of another one."""
        if self._program is not None:
            raise InvalidUsage(f"{origin()}: another program is being written: programs are not nested")
        self._program = program

    def leave(self) -> None:
        """Ends the program that is written."""
        self._program = None

    def get(self) -> Program:
        """The program that is written. Raises InvalidUsage outside of one."""
        if self._program is None:
            raise InvalidUsage(f"{origin()}: there is no program: write this inside of `with {self._class}(...):`")
        return self._program


current_program: CurrentProgram[CollectiveProgram] = CurrentProgram("CollectiveProgram")


def get_program() -> CollectiveProgram:
    """The program that is written. Raises InvalidUsage outside of one."""
    return current_program.get()
