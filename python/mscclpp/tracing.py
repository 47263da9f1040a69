"""Traces of what each rank does when, as a file for Perfetto."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from ._mscclpp import Trace, synchronize_device, write_trace
from .arrays import CPU, GPU
from .comm_group import CommGroup, open_groups
from .errors import InvalidUsage


class RunningTrace:
    """What `with trace(...) as running:` gives."""

    def __init__(self, recorded: Trace) -> None:
        self._trace = recorded
        self._events: dict[str, int] = {}

    @contextlib.contextmanager
    def span(self, name: str, value: int | None = None) -> Iterator[None]:
        """`with running.span("step"):` shows the time of the block, on the track `python` of the calling thread.

        value: a number to display with it. On GPUs the block is what the host does, such as enqueueing.
        """
        event = self._events.get(name)
        if event is None:
            event = self._events[name] = len(self._events)
            self._trace.name(event, name)
        track = self._trace.track_of_this_thread("python")
        track.begin(event, value)
        try:
            yield
        finally:
            track.end(event)

    @property
    def lost(self) -> int:
        """Number of this rank's events that did not fit."""
        return self._trace.lost()


@contextlib.contextmanager
def trace(file: str | os.PathLike[str], comm: CommGroup | None = None, device: str | None = None
          ) -> Iterator[RunningTrace]:  # fmt: skip
    """`with mscclpp.trace("trace.json"):` records the collectives of the block; rank 0 then writes the file.

    Called by all ranks, on one host, with the same arguments. comm: the group; by default the only open one. device:
    "cpu" or "cuda", whose collectives are recorded; by default "cuda" where torch has a GPU, and then the block ends
    with a wait for the device. Stages of the blocks are recorded of some types (docs/tracing.md), the calls of all.
    If the block raises, nothing is written. Raises InvalidUsage if it is not clear which group is meant.
    """
    if comm is None:
        groups = list(open_groups)
        if len(groups) != 1:
            raise InvalidUsage(f"{len(groups)} groups are open: pass comm= to trace()")
        comm = groups[0]
    torch: Any = sys.modules.get("torch")
    if device is None:
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise InvalidUsage(f"device is {device!r}: use 'cpu' or 'cuda'")
    collectives = comm.collectives(GPU if device == "cuda" else CPU)
    recorded = collectives.make_trace()
    collectives.record(recorded)
    try:
        yield RunningTrace(recorded)
    finally:
        collectives.record(None)
        if device == "cuda":
            synchronize_device()  # kernels write into the trace until they end
    write_trace(os.fspath(file), recorded, comm.bootstrap)
