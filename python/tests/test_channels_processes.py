"""Channels between CPU ranks as processes: tensors, ranks that fail or leave, and the end of programs."""

import os
import pathlib
import signal
import threading
import time

import mscclpp
import numpy as np
import pytest
from test_processes import finish, run_python

SHARED_MEMORY = mscclpp.Transport.SharedMemory
CPU = mscclpp.DeviceType.CPU


def connect(comm):
    return comm.make_connection([rank for rank in range(comm.nranks) if rank != comm.my_rank], SHARED_MEMORY)


def all_gather(comm, dtype):
    """Every rank puts its part of a tensor to all others: over port channels, then over memory channels."""
    rank, n, count = comm.my_rank, comm.nranks, 1000
    torch = None
    if dtype.startswith("torch."):
        torch = pytest.importorskip("torch")
        dtype = getattr(torch, dtype.removeprefix("torch."))
    connections = connect(comm)
    for make in ("port", "memory"):
        tensor = comm.empty(n * count, dtype)
        size = tensor.nbytes // n
        tensor[rank * count : (rank + 1) * count] = rank + 1
        with mscclpp.ProxyService(device_type=CPU) as service:
            if make == "port":
                channels = comm.make_port_channels(service, tensor, connections)
            else:
                channels = comm.make_memory_channels(tensor, connections)
            handles = [channel.device_handle() for channel in channels.values()]
            for handle in handles:
                handle.put(rank * size, rank * size, size)
                handle.signal()
            for handle in handles:
                handle.wait()
            comm.barrier()
        values = tensor.float().numpy() if torch else tensor.astype(float)
        assert values.tolist() == np.repeat(np.arange(1.0, n + 1), count).tolist()
    return True


@pytest.mark.parametrize("ranks, dtype", [(2, "torch.bfloat16"), (4, "int16")])
def test_all_gather(ranks, dtype):
    if dtype.startswith("torch."):
        pytest.importorskip("torch")
    assert mscclpp.run(ranks, all_gather, dtype, timeout=120) == [True] * ranks


def make_wait(comm, kind, service):
    """A function that waits for a signal of the peer."""
    connections, peer = connect(comm), 1 - comm.my_rank
    semaphore = comm.make_semaphores(connections)[peer]
    if kind == "host":
        return mscclpp.Host2HostSemaphore(semaphore).wait
    if kind == "memory":
        return mscclpp.BaseMemoryChannel(semaphore).device_handle().wait
    channel = service.base_port_channel(service.add_semaphore(semaphore))
    return channel.device_handle().wait


def wait_for_lost_peer(comm, kind, report, end):
    with mscclpp.ProxyService(device_type=CPU) as service:
        wait = make_wait(comm, kind, service)
        comm.barrier()
        if comm.my_rank == 1:
            time.sleep(0.2)  # so that the other one waits
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            comm.close(barrier=False)
            return
        try:
            wait()
        except mscclpp.RemoteError as error:
            pathlib.Path(report).write_text(str(error))
            if end == "kill":
                raise
            comm.close(barrier=False)


@pytest.mark.parametrize("kind", ["host", "memory", "port"])
@pytest.mark.parametrize("end", ["kill", "leave"])
def test_lost_peer(kind, end, tmp_path):
    report = tmp_path / "report"
    begin = time.monotonic()
    if end == "kill":
        with pytest.raises(mscclpp.RankFailed, match="rank 1 failed:\nkilled by SIGKILL"):
            mscclpp.run(2, wait_for_lost_peer, kind, str(report), end, timeout=60)
    else:
        mscclpp.run(2, wait_for_lost_peer, kind, str(report), end, timeout=60)
    assert time.monotonic() - begin < 20
    assert "rank 1" in report.read_text()


def wait_until_aborted(comm, kind):
    with mscclpp.ProxyService(device_type=CPU) as service:
        wait = make_wait(comm, kind, service)
        stopper = threading.Timer(0.2, comm.communicator.abort)
        stopper.start()
        try:
            wait()
        except mscclpp.Aborted as error:
            return str(error)
        finally:
            stopper.join()


@pytest.mark.parametrize("kind", ["host", "memory", "port"])
def test_abort(kind):
    assert all("abort" in sentence for sentence in mscclpp.run(2, wait_until_aborted, kind, timeout=60))


LIVE_CHANNELS = """
import threading
import mscclpp
bootstrap = mscclpp.TcpBootstrap.create(0, 1)
bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id())
comm = mscclpp.CommGroup(bootstrap=bootstrap)
connections = comm.make_connection([0], mscclpp.Transport.SharedMemory)
buffer = mscclpp.HostBuffer(64)
service = mscclpp.ProxyService(device_type=mscclpp.DeviceType.CPU)
service.start_proxy()
port = comm.make_port_channels(service, buffer, connections)[0]
memory = comm.make_memory_channels(buffer, connections)[0]
handles = [port.device_handle(), memory.device_handle()]
handles[0].put_with_signal(0, 32, 32)
handles[0].wait()
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "del service",  # the channel keeps the proxy, which no longer runs
        "handles[0].signal(); comm.close(barrier=False)",
        "cycle = [service, port, comm]; cycle.append(cycle); del service, port, comm",
        "threading.Thread(target=handles[1].wait, daemon=True).start()",
    ],
)
def test_exit_with_live_channels(end):
    finish(run_python(["-c", LIVE_CHANNELS + end]))
