"""How a program becomes the ranks of a job: a launcher has started them, or run() does."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from typing import Any

from ._mscclpp import ErrorCode, ProcessGroup
from .comm_group import CommGroup
from .errors import InvalidUsage, RemoteError, Timeout

# Ranks that a failure leaves behind detect it by themselves, and are killed after this many seconds.
_GRACE = 10.0

_process_group: ProcessGroup | None = None  # one object per process: the ranks count their calls of connect()


def init(timeout: int | None = None) -> CommGroup:
    """Connects this process to the other ranks, and returns the CommGroup. Every rank calls it.

    The ranks were started by run(), torchrun, mpirun or srun. Ranks of one host need no further settings; across hosts
    MASTER_ADDR and MASTER_PORT, or MSCCLPP_COMM_ID ("ip:port" of rank 0), and MSCCLPP_SECRET, are set on all.
    timeout: seconds; by default MSCCLPP_BOOTSTRAP_TIMEOUT. Raises InvalidUsage if no launcher started this process,
    and Timeout, which names the missing ranks.
    """
    global _process_group
    if _process_group is None:
        _process_group = ProcessGroup.from_environment()
    if _process_group is None:
        if os.environ.get("RANK"):
            raise InvalidUsage(
                f"RANK={os.environ['RANK']} is set, but WORLD_SIZE, the number of ranks, is missing: set both, the "
                "size to the same on all ranks"
            )
        raise InvalidUsage(
            "no launcher started this process as a rank: start it with torchrun, mpirun or srun, or let "
            "mscclpp.run(ranks, function) start the ranks"
        )
    return CommGroup(bootstrap=_process_group.connect(timeout))


class RankFailed(RemoteError):
    """A rank that run() started has failed: `rank`, and the traceback or signal in the message."""

    def __init__(self, message: str = "", code: ErrorCode | int | None = None, rank: int = -1) -> None:
        super().__init__(message, code)
        self.rank = rank


def run(ranks: int, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> list[Any]:
    """Starts ranks on this host, calls function(comm, *args) in each, and returns the results in rank order.

    Each rank is a new process, which imports the program again: the call belongs under `if __name__ == "__main__":`,
    and function, args and results can be pickled. If a rank fails, the others are stopped, and RankFailed is raised
    with its traceback; so is Timeout after `timeout` seconds.
    """
    if ranks < 1:
        raise InvalidUsage(f"run() needs at least one rank, not {ranks}")
    spawn = multiprocessing.get_context("spawn")
    job = uuid.uuid4().hex
    processes: list[Any] = []
    pipes: list[Any] = []
    try:
        for rank in range(ranks):
            receiver, sender = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_run_rank, args=(rank, ranks, job, sender, function, args))
            process.start()
            sender.close()  # so that the end of the rank is the end of its pipe
            processes.append(process)
            pipes.append(receiver)
        results = _collect(processes, pipes, timeout)
        for process in processes:
            process.join(_GRACE)
        return results
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _run_rank(rank: int, ranks: int, job: str, pipe: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    process = os.getpid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.pop("MSCCLPP_COMM_ID", None)  # an address for ranks of another launcher
    os.environ.update(
        MSCCLPP_RANK=str(rank),
        MSCCLPP_WORLD_SIZE=str(ranks),
        MSCCLPP_LOCAL_RANK=str(rank),
        MSCCLPP_LOCAL_SIZE=str(ranks),
        MSCCLPP_JOB=job,
    )
    try:
        with init() as comm:
            result = pickle.dumps(function(comm, *args))
        if os.getpid() == process:
            pipe.send((True, result))
    except BaseException as error:
        if os.getpid() != process:
            raise  # a process that the function has forked ends: the rank is its parent
        # A failure that another rank caused is reported only if that one reports none.
        pipe.send((False, isinstance(error, RemoteError), traceback.format_exc()))
        raise SystemExit(1) from None


def _collect(processes: list[Any], pipes: list[Any], timeout: float | None) -> list[Any]:
    results: dict[int, Any] = {}
    failures: list[tuple[bool, int, int, str]] = []
    waiting = dict(enumerate(pipes))
    deadline = None if timeout is None else time.monotonic() + timeout
    while waiting:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = multiprocessing.connection.wait(list(waiting.values()), left)
        if not ready:
            break
        for rank in [rank for rank, pipe in waiting.items() if pipe in ready]:
            message = _receive(waiting.pop(rank), processes[rank])
            if message[0]:
                results[rank] = pickle.loads(message[1])
                continue
            failures.append((message[1], len(failures), rank, message[2]))
            end = time.monotonic() + _GRACE
            deadline = end if deadline is None else min(deadline, end)
    if failures:
        _, _, rank, text = min(failures)
        raise RankFailed(f"rank {rank} failed:\n{text}", rank=rank)
    if waiting:
        raise Timeout(f"ranks {sorted(waiting)} have not returned within {timeout} s")
    return [results[rank] for rank in range(len(pipes))]


def _receive(pipe: Any, process: Any) -> Any:
    with contextlib.suppress(EOFError, OSError):
        return pipe.recv()
    process.join(_GRACE)
    status = process.exitcode
    reason = f"exit status {status}"
    if status is not None and status < 0:
        reason = f"killed by {signal.Signals(-status).name}"
    return False, False, reason
