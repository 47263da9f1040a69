"""The calls of a group, which are performed together when it ends."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._mscclpp import CollectiveCall, Collectives
from .errors import InvalidUsage

Message = tuple[int, int, int]  # address, bytes, peer


@dataclasses.dataclass(slots=True)
class PendingCalls:
    """Calls of one Collectives, in the order in which they were made."""

    collectives: Collectives
    calls: list[CollectiveCall] = dataclasses.field(default_factory=list)
    sends: list[Message] = dataclasses.field(default_factory=list)
    receives: list[Message] = dataclasses.field(default_factory=list)
    stream: int | None = None  # of the messages
    arrays: list[Any] = dataclasses.field(default_factory=list)  # what the calls read and write stays alive

    def add(self, call: CollectiveCall, *arrays: Any) -> None:
        self.calls.append(call)
        self.arrays.extend(arrays)

    def add_messages(self, sends: list[Message], receives: list[Message], stream: int, *arrays: Any) -> None:
        if self.stream not in (None, stream):
            raise InvalidUsage("the messages of a group are on different streams: pass one stream to all of them")
        self.stream = stream
        self.sends.extend(sends)
        self.receives.extend(receives)
        self.arrays.extend(arrays)

    def run(self) -> None:
        # All ranks have the same collectives, but not every rank has messages: so these come after them.
        if self.calls:
            self.collectives.run(self.calls)
        if self.sends or self.receives:
            self.collectives.exchange(self.sends, self.receives, self.stream or 0)
