"""Ranks as threads of the test's process, for what needs no processes."""

import concurrent.futures
import contextlib
import sys
from unittest import mock

import mscclpp


def _refuse_fake_tensors():
    raise AssertionError(
        "PyTorch crashes in a later backward pass after fake tensors, as of torch.compile or opcheck, in a thread that "
        "has ended: without a GPU the process keeps a pointer to a device guard of the thread. Use the main thread."
    )


@contextlib.contextmanager
def _without_fake_tensors():
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with mock.patch.object(torch._C, "_ensureCUDADeviceGuardSet", _refuse_fake_tensors):
        yield


def run_threads(ranks, function, timeout=30):
    """Calls function(bootstrap) in one thread for each rank, and returns the results in rank order."""
    unique_id = mscclpp.TcpBootstrap.create_unique_id()

    def call(rank):
        bootstrap = mscclpp.TcpBootstrap.create(rank, ranks)
        bootstrap.initialize(unique_id, timeout)
        return function(bootstrap)

    with _without_fake_tensors(), concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(call, range(ranks), timeout=timeout))


def lone_bootstrap():
    """The bootstrap of one rank."""
    bootstrap = mscclpp.TcpBootstrap.create(0, 1)
    bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id())
    return bootstrap


def single_rank():
    """A CommGroup of one rank."""
    return mscclpp.CommGroup(bootstrap=lone_bootstrap())
