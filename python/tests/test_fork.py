"""Processes that are forked from a rank, and threads of one."""

import concurrent.futures
import os
import sys
import time
import traceback

import mscclpp
import numpy as np
from rank_threads import run_threads


def in_child(function):
    """What function() raises or returns in a forked child, as text; the child ends as an ordinary interpreter."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            text = f"returned {function()!r}"
        except BaseException:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os.close(writer)
        sys.exit(0)  # runs what is registered with atexit, and destroys what the child inherited
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    deadline = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "the child does not end"
        time.sleep(0.01)
    return text


def fork_from_rank(comm):
    array = comm.empty(1000)
    comm.all_reduce(np.ones(1000, np.float32), out=array)
    for use in (lambda: comm.all_reduce(np.ones(3)), comm.barrier, lambda: comm.empty(3), lambda: comm.free(array)):
        text = in_child(use)
        assert f"forked from rank {comm.my_rank}" in text and "InvalidUsage" in text, text
    assert in_child(comm.close) == "returned None"
    # The parent, its peers, and the memory that they share are as before.
    assert (array == comm.nranks).all()
    for _ in range(3):
        comm.all_reduce(np.full(1000, comm.my_rank, np.float32), out=array)
        assert (array == 1).all()
        comm.barrier()
    return True


def test_fork():
    assert mscclpp.run(2, fork_from_rank, timeout=100) == [True, True]


def fork_and_make_group(comm):
    def lone_rank():
        bootstrap = mscclpp.TcpBootstrap.create(0, 1)
        bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id())
        with mscclpp.CommGroup(bootstrap=bootstrap) as group:
            return group.all_reduce(np.ones(3)).tolist()

    text = in_child(lone_rank)
    comm.barrier()
    return text


def test_child_with_a_group_of_its_own():
    assert mscclpp.run(2, fork_and_make_group, timeout=60) == ["returned [1.0, 1.0, 1.0]"] * 2


def test_groups_of_threads():
    """Ranks, and two groups of each, are used by threads of one process at the same time."""

    def work(bootstrap):
        with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
            return [comm.all_reduce(np.full(5, i + comm.my_rank)).tolist() for i in range(200)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for results in pool.map(lambda _: run_threads(3, work), range(2)):
            assert results == [[[3 * i + 3] * 5 for i in range(200)]] * 3


def test_threads_run_while_a_call_waits():
    def work(bootstrap):
        with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
            comm.all_reduce(np.ones(1))
            if comm.my_rank == 0:
                time.sleep(0.5)  # the other rank waits in its call, and this one sleeps only if the lock is free
            begin = time.monotonic()
            comm.all_reduce(np.ones(1))
            return time.monotonic() - begin

    waited = run_threads(2, work)
    assert waited[0] < 0.4 < waited[1]
