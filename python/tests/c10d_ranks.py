"""Ranks of torch.distributed as processes, for tests of the backend."""

import contextlib
import datetime
import os
import pathlib
import tempfile
import time
import traceback

import mscclpp.torch  # registers the backend
import torch.multiprocessing
from torch import distributed as dist

BACKEND = "mscclpp"


def run(ranks, function, *args, backend=BACKEND, timeout=120, group_timeout=60, expect_exit=()):
    """function(rank, *args) in each of `ranks` processes with a process group; its results in rank order.

    expect_exit: ranks that end otherwise than by returning, whose result is None. A rank that fails fails the test with
    its traceback.
    """
    # Ranks are forked from a process that has imported torch, and has no threads: an import takes seconds, also that of
    # torch._dynamo, which the first step of an optimizer needs.
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["c10d_ranks", "mscclpp.torch", "torch.distributed.tensor", "torch.distributed.fsdp", "torch._dynamo"]
    )
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(pathlib.Path(folder) / "store")
        processes = [
            context.Process(target=_work, args=(rank, ranks, store, backend, group_timeout, results, function, args))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        end = time.monotonic() + timeout
        collected = [None] * ranks
        try:
            waiting = set(range(ranks)) - set(expect_exit)
            while waiting:
                if results.empty():
                    dead = [i for i in waiting if not processes[i].is_alive() and results.empty()]
                    assert not dead, f"ranks {dead} ended: {[processes[i].exitcode for i in dead]}"
                    assert time.monotonic() < end, f"ranks {sorted(waiting)} did not return"
                    time.sleep(0.01)
                    continue
                rank, is_good, value = results.get()
                assert is_good, f"rank {rank}:\n{value}"
                collected[rank] = value
                waiting.discard(rank)
            for rank, process in enumerate(processes):
                if rank not in expect_exit:
                    process.join(30)
                    assert process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
        finally:
            for process in processes:
                process.kill()
                process.join()
        return collected


def _work(rank, ranks, store, backend, group_timeout, results, function, args):
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    try:
        dist.init_process_group(
            backend,
            store=dist.FileStore(store, ranks),
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=group_timeout),
        )
        value = function(rank, *args)
    except BaseException:
        results.put((rank, False, traceback.format_exc()))
        raise
    results.put((rank, True, value))
    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def seconds_at_most(limit):
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < limit
