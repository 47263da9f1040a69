"""Ranks as threads of the test's process, for what needs no processes."""

import concurrent.futures

import mscclpp


def run_threads(ranks, function, timeout=30):
    """Calls function(bootstrap) in one thread for each rank, and returns the results in rank order."""
    unique_id = mscclpp.TcpBootstrap.create_unique_id()

    def call(rank):
        bootstrap = mscclpp.TcpBootstrap.create(rank, ranks)
        bootstrap.initialize(unique_id, timeout)
        return function(bootstrap)

    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(call, range(ranks), timeout=timeout))


def single_rank():
    """A CommGroup of one rank."""
    bootstrap = mscclpp.TcpBootstrap.create(0, 1)
    bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id())
    return mscclpp.CommGroup(bootstrap=bootstrap)
