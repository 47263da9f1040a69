"""The tuner: measures the algorithms of collectives, and writes the file by which they are selected."""

from __future__ import annotations

import os
import statistics
import struct
import sys
from collections.abc import Iterable
from typing import Any

from ._mscclpp import (
    Bootstrap,
    CallTimer,
    CollectiveCall,
    Collectives,
    CollectiveType,
    Communicator,
    DeviceType,
    HostBuffer,
    RawGpuBuffer,
    ReduceOp,
    TuningTable,
    device_name,
    size_of,
)
from .arrays import CPU, GPU
from .dtypes import to_dtype, to_reduce_op
from .errors import InvalidUsage

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
               "send_receive")  # fmt: skip
# Whose size is that of all ranks' parts together, as in docs/benchmarks.md.
_OF_ALL_PARTS = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
_UNLIMITED = 1 << 45  # elements: more than an algorithm with a limit takes

Choices = dict[str, list[tuple[int | None, str]]]


class Tuner:
    """tune() of a CommGroup."""

    my_rank: int
    nranks: int
    bootstrap: Bootstrap
    communicator: Communicator
    _collectives: dict[DeviceType, Collectives]

    def tune(self, file: str | os.PathLike[str], collectives: str | Iterable[str] = COLLECTIVES,
             sizes: Iterable[int] | None = None, dtype: Any = "float32", op: str | ReduceOp = "sum",
             device: str | None = None, calls: int = 50, repeats: int = 7,
             progress: bool | None = None) -> Choices:  # fmt: skip
        """Measures all algorithms, and writes the fastest for each size into `file`, as `mscclpp-perf --tune` does.

        Processes with MSCCLPP_TUNING_FILE set to the file select by it. Tables of other collectives, numbers of ranks
        and devices in the file are kept. Called by all ranks; nothing else should use the devices. On GPUs it comes
        before the group's first collective and empty(): kernels of a group that has the GPU alone start earlier.

        collectives: names, or one. sizes: bytes, as docs/benchmarks.md defines them; by default the powers of two from
        1 KiB to 64 MiB. device: "cpu" or "cuda", the current GPU; by default "cuda" where torch has one. calls:
        per measurement, of which the median of `repeats` counts. progress: a bar on the standard error of rank 0; by
        default if that is a terminal.

        Returns for each collective the choices by growing size: (largest size of the message or part in bytes, or None
        for any, algorithm). Raises InvalidUsage on all ranks if the file is there and is no tuning file.
        """
        torch: Any = sys.modules.get("torch")
        if device is None:
            device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
        if device not in ("cpu", "cuda"):
            raise InvalidUsage(f"device is {device!r}: use 'cpu' or 'cuda'")
        if device == "cuda" and GPU in self._collectives:
            raise InvalidUsage("this group has used GPUs already: call tune() before that")
        names = [collectives] if isinstance(collectives, str) else list(collectives)
        for name in names:
            if name not in COLLECTIVES:
                raise InvalidUsage(f"there is no collective {name!r} to tune: use {', '.join(COLLECTIVES)}")
        self._require_usable(os.fspath(file))
        byte_counts = sorted(sizes) if sizes is not None else [1 << power for power in range(10, 27)]
        measurement = _Measurement(self, GPU if device == "cuda" else CPU, byte_counts, dtype, op, calls, repeats)
        bar = _ProgressBar(len(names) * len(byte_counts), self.my_rank == 0, progress)
        choices: Choices = {}
        for name in names:
            table = measurement.table_of(name, bar)
            choices[name] = [(largest or None, algorithm) for largest, algorithm in table.choices()]
            if self.my_rank == 0:
                table.write_to(os.fspath(file), device_name(measurement.device_type), self.nranks,
                               CollectiveType[name])  # fmt: skip
        bar.end()
        self.bootstrap.barrier()  # the file is there, and no peer still uses this rank's memory
        return choices

    def _require_usable(self, file: str) -> None:
        """Raises on all ranks what rank 0 finds wrong with the file, before the long measurement."""
        problem = ""
        if self.my_rank == 0:
            try:
                TuningTable.require_usable(file)
                with open(file, "a"):
                    pass
                if os.path.getsize(file) == 0:
                    os.remove(file)
            except (InvalidUsage, OSError) as error:
                problem = f"cannot put the choices into {file}: {error}"
        text = problem.encode()[:1000].ljust(1000, b"\0")
        problem = self.bootstrap.all_gather(text)[0].rstrip(b"\0").decode(errors="ignore")
        if problem:
            raise InvalidUsage(problem)


class _Measurement:
    def __init__(self, comm: Tuner, device_type: DeviceType, sizes: list[int], dtype: Any, op: str | ReduceOp,
                 calls: int, repeats: int) -> None:  # fmt: skip
        self.comm, self.device_type, self.sizes, self.calls, self.repeats = comm, device_type, sizes, calls, repeats
        self.dtype, self.op = to_dtype(dtype), to_reduce_op(op)
        self.collectives = Collectives(comm.communicator, device_type, Collectives.Algorithms.All)
        nbytes = max([*sizes, comm.nranks * size_of(self.dtype)])
        allocate = RawGpuBuffer if device_type is GPU else HostBuffer
        self.input, self.output, self.registered = (allocate(nbytes) for _ in range(3))
        self.registration = self.collectives.register_buffer(self.registered.data(), nbytes)

    def table_of(self, name: str, bar: _ProgressBar) -> TuningTable:
        table, counts = TuningTable(), set()
        for size in self.sizes:
            bar.advance(f"{name} of {size} bytes")
            parts = self.comm.nranks if name in _OF_ALL_PARTS else 1
            count = max(size // size_of(self.dtype) // parts, 1)
            if count in counts:
                continue
            counts.add(count)
            candidates = [
                (algorithm, is_registered)
                for algorithm in self.collectives.algorithms(CollectiveType[name])
                if (is_registered := self._needs_registration(name, algorithm, count)) is not None
            ]
            for (algorithm, is_registered), time in zip(candidates, self._times(name, count, candidates)):
                longest = self._call(name, algorithm, _UNLIMITED, is_registered)
                is_unlimited = is_registered or self.collectives.supports(longest)
                table.add(count * size_of(self.dtype), algorithm, is_registered, is_unlimited, time)
        return table

    def _call(self, name: str, algorithm: str, count: int, is_registered: bool) -> CollectiveCall:
        rank, ranks = self.comm.my_rank, self.comm.nranks
        after, before = ((rank + 1) % ranks, (rank - 1) % ranks) if name == "send_receive" else (-1, -1)
        output = self.registered if is_registered else self.output
        return CollectiveCall(CollectiveType[name], input=self.input.data(), output=output.data(), count=count,
                              dtype=self.dtype, op=self.op, algorithm=algorithm, destination=after,
                              origin=before, received_count=count)  # fmt: skip

    def _needs_registration(self, name: str, algorithm: str, count: int) -> bool | None:
        """None if the algorithm does not take such a call at all."""
        for is_registered in (False, True):
            if self.collectives.supports(self._call(name, algorithm, count, is_registered)):
                return is_registered
        return None

    def _times(self, name: str, count: int, candidates: list[tuple[str, bool]]) -> list[float]:
        """Microseconds: the slowest rank's median. They are measured in turn: what disturbs one disturbs the others."""
        timers = [
            CallTimer(self.comm.bootstrap, self.collectives, self.device_type,
                      self._call(name, algorithm, count, is_registered), calls=self.calls)
            for algorithm, is_registered in candidates
        ]  # fmt: skip
        samples: list[list[float]] = [[] for _ in timers]
        for _ in range(self.repeats):
            for timer, times in zip(timers, samples):
                times.append(timer.measure())
        medians = [statistics.median(times) for times in samples]
        layout = f"{len(medians)}d"
        ranks = [struct.unpack(layout, data) for data in self.comm.bootstrap.all_gather(struct.pack(layout, *medians))]
        return [max(times) for times in zip(*ranks)]


class _ProgressBar:
    WIDTH = 30

    def __init__(self, steps: int, is_first_rank: bool, wanted: bool | None) -> None:
        self.steps, self.step = steps, 0
        self.is_shown = is_first_rank and (sys.stderr.isatty() if wanted is None else wanted)

    def advance(self, what: str) -> None:
        self._show(what)
        self.step += 1

    def end(self) -> None:
        self._show("done")
        if self.is_shown:
            print(file=sys.stderr)

    def _show(self, what: str) -> None:
        if self.is_shown:
            bar = ("#" * (self.WIDTH * self.step // max(self.steps, 1))).ljust(self.WIDTH)
            print(f"\r[{bar}] {self.step}/{self.steps} {what}\x1b[K", end="", file=sys.stderr, flush=True)
