"""Bootstraps, connections, memory and semaphores, with ranks as threads."""

import socket
import threading
import time

import mscclpp
import numpy as np
import pytest
from rank_threads import run_threads


def test_bootstrap():
    def body(bootstrap):
        rank, n = bootstrap.get_rank(), bootstrap.get_n_ranks()
        assert bootstrap.get_n_ranks_per_node() == bootstrap.get_n_ranks_per_ipc_domain() == n == 3
        assert bootstrap.all_gather(bytes([rank, 7])) == [bytes([r, 7]) for r in range(n)]
        bootstrap.send(b"message %d" % rank, (rank + 1) % n, 5)
        assert bootstrap.recv((rank - 1) % n, 5) == b"message %d" % ((rank - 1) % n)
        numbers = np.full(4, rank, np.int64)
        received = np.empty_like(numbers)
        bootstrap.send(numbers.ctypes.data, numbers.nbytes, (rank + 1) % n, 6)
        bootstrap.recv(received.ctypes.data, received.nbytes, (rank - 1) % n, 6)
        assert (received == (rank - 1) % n).all()
        blocks = np.zeros(n, np.int32)
        blocks[rank] = rank + 1
        bootstrap.all_gather(blocks.ctypes.data, 4)
        assert blocks.tolist() == [1, 2, 3]
        bootstrap.group_barrier([0, 1, 2])
        bootstrap.barrier()
        assert bootstrap.failure() is None
        return rank

    assert run_threads(3, body) == [0, 1, 2]


def test_a_blocked_call_stops_no_other_thread():
    """Without the release of the interpreter's lock, the barrier of rank 1 would never be reached."""

    def body(bootstrap):
        if bootstrap.get_rank() == 1:
            counted = 0
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                counted += 1
            assert counted > 1000
            bootstrap.send(b"go on", 0, 0)
            return counted
        return bootstrap.recv(1, 0)

    assert run_threads(2, body)[0] == b"go on"


def test_abort_from_another_thread():
    def body(bootstrap):
        if bootstrap.get_rank() == 1:
            bootstrap.recv(0, 1)
            return None
        stopper = threading.Timer(0.3, bootstrap.abort)
        stopper.start()
        with pytest.raises(mscclpp.Aborted) as error:
            bootstrap.recv(1, 0)
        stopper.join()
        return error.value.code

    with pytest.raises(mscclpp.RemoteError):  # of rank 1, whose peer is unusable
        run_threads(2, body)


def test_connections():
    def body(bootstrap):
        rank, peer = bootstrap.get_rank(), 1 - bootstrap.get_rank()
        communicator = mscclpp.Communicator(bootstrap)
        transport = mscclpp.Transport.SharedMemory
        buffer = mscclpp.HostBuffer(64)
        memory = communicator.register_memory(buffer.data(), buffer.bytes(), transport)
        communicator.send_memory(memory, peer)
        receiving = communicator.recv_memory(peer)
        connecting = communicator.connect(mscclpp.EndpointConfig(transport, mscclpp.DeviceType.CPU), peer)
        remote, connection = receiving.get(), connecting.get()
        assert (communicator.remote_rank_of(connection), communicator.tag_of(connection)) == (peer, 0)
        assert (connection.transport(), connection.local_device().type) == (transport, mscclpp.DeviceType.CPU)
        semaphore = communicator.build_semaphore(connection, peer).get()
        assert semaphore.connection() == connection and semaphore.local_memory().size() == 8

        values = np.asarray(buffer.to_dlpack("int64"))
        values[0] = 10 + rank
        connection.write(remote, 8, memory, 0, 8)
        connection.flush()
        bootstrap.barrier()
        assert values[1] == 10 + peer
        with pytest.raises(mscclpp.InvalidUsage):
            connection.write(remote, 60, memory, 0, 8)
        copy = mscclpp.RegisteredMemory.deserialize(memory.serialize())
        assert copy.size() == 64 and copy.transports().has(transport)
        bootstrap.barrier()
        return True

    assert run_threads(2, body) == [True, True]


def test_comm_group_by_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"lo:127.0.0.1:{probe.getsockname()[1]}"
    groups = [None, None]

    def join(rank):
        groups[rank] = mscclpp.CommGroup(interfaceIpPortTrio=address, rank=rank, size=2)
        assert (groups[rank].my_rank, groups[rank].nranks) == (rank, 2)
        groups[rank].close()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(group is not None and group.communicator is None for group in groups)


def test_comm_group_over_mpi():
    """mpi4py's communicator is needed for its rank, its size and one broadcast."""
    arrived = threading.Barrier(2)
    sent = []

    class Mpi:
        def __init__(self, rank):
            self.rank = rank

        def Get_rank(self):
            return self.rank

        def Get_size(self):
            return 2

        def bcast(self, value, root):
            if self.rank == root:
                sent.append(value)
            arrived.wait(20)
            return sent[0]

    sums = [0, 0]

    def join(rank):
        with mscclpp.CommGroup(mpi_comm=Mpi(rank)) as comm:
            sums[rank] = comm.all_reduce(np.full(3, rank + 1.0)).tolist()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [[3.0] * 3] * 2


def test_transport_flags():
    flags = mscclpp.TransportFlags(mscclpp.Transport.CudaIpc) | mscclpp.Transport.Ethernet
    assert flags.has(mscclpp.Transport.Ethernet) and flags.count() == 2 and not flags.none()
    assert flags & mscclpp.AllIBTransports == mscclpp.NoTransports
    assert ~mscclpp.TransportFlags() == mscclpp.AllTransports
    assert "Ethernet" in repr(flags)


def test_host_buffer():
    array = np.from_dlpack(mscclpp.HostBuffer(24).to_dlpack("torch.float32", (2, 3)))
    assert array.shape == (2, 3) and array.dtype == np.float32 and not array.any()  # the buffer lives on
    strided = np.from_dlpack(mscclpp.HostBuffer(24).to_dlpack("int16", (2, 3), (6, 2)))
    assert strided.strides == (12, 4)
    with pytest.raises(mscclpp.InvalidUsage, match="buffer has 12"):
        mscclpp.HostBuffer(24).to_dlpack("int16", (2, 3), (8, 2))
    assert np.asarray(mscclpp.HostBuffer(0).to_dlpack()).shape == (0,)


class Exchanged:
    """An array of a library that is not known by name."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_any_array_with_dlpack():
    from rank_threads import single_rank

    with single_rank() as comm:
        out = np.zeros(3, np.float32)
        comm.all_reduce(Exchanged(np.arange(3, dtype=np.float32)), out=out)
        assert out.tolist() == [0, 1, 2]
        with pytest.raises(mscclpp.InvalidUsage, match="pass out="):
            comm.all_reduce(Exchanged(out))
        with pytest.raises(mscclpp.InvalidUsage, match="not contiguous"):
            comm.all_reduce(Exchanged(np.zeros((3, 3))[:, 1:]), out=out)


def test_numa():
    from mscclpp import numa

    numa.numa_bind(-1)
    with pytest.raises(mscclpp.InvalidUsage):
        numa.numa_bind(100000)
