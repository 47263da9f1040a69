"""Semaphores, memory channels, port channels with their proxy, and FIFOs, between CPU ranks as threads."""

import contextlib
import pickle
import threading
import time

import mscclpp
import numpy as np
import pytest
from rank_threads import run_threads, single_rank

SHARED_MEMORY = mscclpp.Transport.SharedMemory
TCP = mscclpp.EndpointConfig(mscclpp.Transport.Ethernet, mscclpp.DeviceType.CPU)


@contextlib.contextmanager
def connected(bootstrap, endpoints=SHARED_MEMORY):
    """The group of a rank, and its connections to all others."""
    with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
        yield comm, comm.make_connection([rank for rank in range(comm.nranks) if rank != comm.my_rank], endpoints)


def proxy_service(**options):
    return mscclpp.ProxyService(device_type=mscclpp.DeviceType.CPU, **options)


def words_of(buffer):
    return np.asarray(buffer.to_dlpack("int64"))


def part(rank, peer, words=16):
    """What a rank sends to a peer."""
    return np.arange(words) * 1000 + 10 * rank + peer


@pytest.mark.parametrize("endpoints", [SHARED_MEMORY, TCP])
def test_hosts_signal_each_other(endpoints):
    def body(bootstrap):
        with connected(bootstrap, endpoints) as (comm, connections):
            semaphores = comm.make_semaphores(connections)
            for peer, semaphore in semaphores.items():
                assert semaphore.connection() == connections[peer]
            hosts = {peer: mscclpp.Host2HostSemaphore(semaphore) for peer, semaphore in semaphores.items()}
            for host in hosts.values():
                host.signal()
                host.signal()
            for host in hosts.values():
                host.wait()
                host.wait(-1)
                assert not host.poll()
            comm.barrier()
            peer = 1 - comm.my_rank
            again = mscclpp.Host2HostSemaphore(comm.communicator, connections[peer])
            again.signal()
            again.wait()
            with pytest.raises(mscclpp.Timeout, match=f"rank {comm.my_rank} waited for signal 2 of rank {peer}"):
                again.wait(2000)
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


def test_the_host_signals_a_kernel():
    """On a CPU rank the kernel is this thread."""

    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            peer = 1 - comm.my_rank
            semaphore = mscclpp.Host2DeviceSemaphore(comm.make_semaphores(connections)[peer])
            handle = semaphore.device_handle()
            comm.barrier()
            assert not handle.poll()
            comm.barrier()
            semaphore.signal()
            handle.wait()
            comm.barrier()
            assert not handle.poll()
            assert semaphore.connection() == connections[peer] and len(handle.raw) == 48
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_memory_channels(ranks):
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            rank, n = comm.my_rank, comm.nranks
            inbox = mscclpp.HostBuffer(n * 128)
            outbox = mscclpp.HostBuffer(n * 128)
            words = words_of(outbox).reshape(n, 16)
            for peer in connections:
                words[peer] = part(rank, peer)
            scratch = comm.register_local_memory(inbox, connections)
            channels = comm.make_memory_channels_with_scratch(outbox, scratch, connections)
            handles = {peer: channel.device_handle() for peer, channel in channels.items()}
            for peer, handle in handles.items():
                handle.put(128 * rank, 128 * peer, 128)
                handle.signal()
            for handle in handles.values():
                handle.wait()
                assert not handle.poll()
            for peer in connections:
                assert (words_of(inbox).reshape(n, 16)[peer] == part(peer, rank)).all()
            comm.barrier()
            # From the peer's own tensor.
            both = comm.empty(8, "int64")
            both[:4] = rank
            channels = comm.make_memory_channels(both, connections)
            neighbour = (rank + 1) % n
            comm.barrier()
            channels[neighbour].device_handle().get(0, 32, 32)
            assert both.tolist() == [rank] * 4 + [neighbour] * 4
            comm.barrier()
        return True

    assert run_threads(ranks, body) == [True] * ranks


def test_memory_channels_without_data():
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            peer = 1 - comm.my_rank
            semaphore = mscclpp.MemoryDevice2DeviceSemaphore(comm.communicator, connections[peer])
            channel = mscclpp.BaseMemoryChannel(semaphore)
            handle = channel.device_handle()
            handle.signal(2)
            handle.wait()
            semaphore.device_handle().wait()  # counts together with the channel
            assert not handle.poll() and handle.raw == semaphore.device_handle().raw
            other = mscclpp.BaseMemoryChannel(comm.make_semaphores(connections)[peer])
            other.device_handle().signal()
            other.device_handle().wait()
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


@pytest.mark.parametrize("ranks, endpoints", [(2, SHARED_MEMORY), (4, SHARED_MEMORY), (2, TCP)])
def test_port_channels(ranks, endpoints):
    def body(bootstrap):
        with connected(bootstrap, endpoints) as (comm, connections), proxy_service(fifos=2) as service:
            rank, n = comm.my_rank, comm.nranks
            inbox, outbox = mscclpp.HostBuffer(n * 128), mscclpp.HostBuffer(n * 128)
            words = words_of(outbox).reshape(n, 16)
            for peer in connections:
                words[peer] = part(rank, peer)
            scratch = comm.register_local_memory(inbox, connections)
            channels = comm.make_port_channels_with_scratch(service, outbox, scratch, connections)
            handles = {peer: channel.device_handle() for peer, channel in channels.items()}
            for peer, handle in handles.items():
                handle.put(128 * rank, 128 * peer, 64)
                handle.put(128 * rank + 64, 128 * peer + 64, 8)  # travels within the request
                handle.put_with_signal(128 * rank + 72, 128 * peer + 72, 56)
            for handle in handles.values():
                handle.wait()
            received = words_of(inbox).reshape(n, 16)
            for peer in connections:
                assert (received[peer] == part(peer, rank)).all()
            comm.barrier()
            # A flush says that the source may be overwritten.
            for peer, handle in handles.items():
                words[peer] = -part(rank, peer)
                handle.put_with_signal_and_flush(128 * rank, 128 * peer, 128)
                words[peer] = 0
            for peer, handle in handles.items():
                handle.wait()
                assert (received[peer] == -part(peer, rank)).all()
                handle.signal()
                handle.flush()
            for handle in handles.values():
                handle.wait()
                assert not handle.poll()
            assert service.running()
            service.check()
            comm.barrier()
        return True

    assert run_threads(ranks, body) == [True] * ranks


def test_port_channels_that_name_memories():
    config = mscclpp.EndpointConfig(SHARED_MEMORY, mscclpp.DeviceType.CPU)

    def body(bootstrap):
        with connected(bootstrap) as (comm, connections), proxy_service() as service:
            rank, peer = comm.my_rank, 1 - comm.my_rank
            assert service.next_memory_id() == 0
            first, second = comm.empty(16, "int64"), comm.empty(16, "int64")
            of_first = comm.register_memory_with_proxy(service, first, connections)
            of_second = comm.register_memory_with_proxy(service, second, connections)
            assert sorted([*of_first.values(), *of_second.values()]) == [0, 1, 2, 3]
            assert service.next_memory_id(2) == 4
            channel = comm.register_semaphore_with_proxy(service, connections)[peer]
            handle = channel.device_handle()
            first[:] = part(rank, peer)
            handle.put(of_second[peer], 8, of_first[rank], 0, 64)
            handle.put_with_signal(of_second[peer], 72, of_first[rank], 64, 8)
            handle.wait()
            assert (second[1:10] == part(peer, rank)[:9]).all() and second[0] == 0 and second[10] == 0
            handle.flush()
            comm.barrier()
            # The other ways to a channel.
            other = comm.communicator.connect(config, peer, 1).get()
            built = service.build_and_add_semaphore(comm.communicator, other)
            added = service.add_semaphore(mscclpp.Host2DeviceSemaphore(comm.make_semaphores(connections)[peer]))
            assert (built, added) == (1, 2) and service.semaphore(built).connection() == other
            whole = service.port_channel(built, of_first[peer], of_second[rank]).device_handle()
            whole.put_with_signal(0, 0, 128)
            whole.wait()
            assert first[1] == part(rank, peer)[0]
            comm.barrier()
        assert not service.running()
        return True

    assert run_threads(2, body) == [True] * 2


def test_invalid_request_ends_the_proxy():
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            peer = 1 - comm.my_rank
            service = proxy_service()
            channel = comm.make_port_channels(service, mscclpp.HostBuffer(64), connections)[peer]
            handle = channel.device_handle()
            # The error of the block is raised, not that of the proxy, which stops behind it.
            with pytest.raises(mscclpp.Aborted, match="the proxy ended: trigger 0 of FIFO 0"), service:
                comm.barrier()
                handle.put(0, 60, 8)
                handle.flush()
            with pytest.raises(mscclpp.InvalidUsage, match="8 bytes from memory 0 . 60"):
                service.check()
            with pytest.raises(mscclpp.InvalidUsage, match="it has failed before"):
                service.start_proxy()
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


def test_requests_wait_for_a_stopped_proxy():
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            peer = 1 - comm.my_rank
            memory = comm.empty(2, "int64")
            service = proxy_service(fifo_size=2)
            handle = comm.make_port_channels(service, memory, connections)[peer].device_handle()
            memory[0] = comm.my_rank + 5
            handle.put_with_signal(8, 0, 8)
            comm.barrier()
            assert not handle.poll() and memory[1] == 0
            comm.barrier()
            # The FIFO is full after the next one; a thread that waits for a slot stops no other thread.
            handle.signal()
            starter = threading.Timer(0.2, service.start_proxy)
            starter.start()
            handle.signal()
            starter.join()
            for _ in range(3):
                handle.wait()
            assert memory[1] == peer + 5
            service.stop_proxy()
            service.start_proxy()
            handle.signal()
            handle.wait()
            comm.barrier()
            service.stop_proxy()
        return True

    assert run_threads(2, body) == [True] * 2


def test_fifo():
    fifo = mscclpp.Fifo(4, mscclpp.DeviceType.CPU)
    handle = fifo.device_handle()
    assert fifo.size() == 4 and fifo.poll() is None
    with pytest.raises(mscclpp.InvalidUsage, match=r"call poll\(\) first"):
        fifo.pop()
    threads = [
        threading.Thread(target=lambda i=i: [handle.push(mscclpp.ProxyTrigger(i, j)) for j in range(100)])
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    taken = []
    end = time.monotonic() + 30
    while len(taken) < 300:
        assert time.monotonic() < end
        trigger = fifo.poll()
        if trigger is not None:
            taken.append((trigger.fst, trigger.snd))
            fifo.pop()
    for thread in threads:
        thread.join()
    assert fifo.tail() == 300 and fifo.poll() is None
    for i in range(3):
        assert [snd for fst, snd in taken if fst == i] == list(range(100))
    position = handle.push(mscclpp.ProxyTrigger())
    assert position == 300 and not handle.poll(position)
    assert fifo.poll() is not None
    fifo.pop()
    handle.sync(position)
    assert handle.poll(position)


def test_trigger():
    kind = mscclpp.TriggerData | mscclpp.TriggerFlag
    trigger = mscclpp.ProxyTrigger(kind, dst=3, dst_offset=40, src=5, src_offset=60, size=70, semaphore=8)
    fields = (trigger.type, trigger.dst, trigger.dst_offset, trigger.src, trigger.src_offset, trigger.size)
    assert fields == (kind, 3, 40, 5, 60, 70) and trigger.semaphore == 8
    copy = mscclpp.ProxyTrigger(trigger.fst, trigger.snd)
    copy.fst += 1
    assert copy.size == 71 and trigger.size == 70


def test_host_messages():
    def body(bootstrap):
        with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
            peer = 1 - comm.my_rank
            comm.send(np.full(5, comm.my_rank, np.int16), peer, 3)
            comm.send(np.full(2, 7.0), peer, tag=4)
            last = np.zeros(2)
            assert comm.recv(last, peer, 4) is last and last.tolist() == [7.0, 7.0]
            assert comm.recv(np.zeros(5, np.int16), peer, tag=3).tolist() == [peer] * 5
            if comm.my_rank == 0:
                comm.send(np.ones(3), 1)
            else:
                assert comm.recv(np.zeros(3), 0).tolist() == [1.0] * 3
        return True

    assert run_threads(2, body) == [True] * 2


def test_operations_of_a_connection():
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            peer = 1 - comm.my_rank
            words = comm.empty(4, "int64")
            memories = comm.register_tensor_with_connections(words, connections)
            connection = connections[peer]
            assert connection.supports_write_value() and connection.issued() == connection.completed() == 0
            connection.write_value(memories[peer], 8, 70 + comm.my_rank)
            counter = mscclpp.HostBuffer(8)
            connection.update_and_sync(memories[peer], 16, counter.data(), 90 + comm.my_rank)
            connection.flush()
            assert connection.issued() == connection.completed() == 2
            assert words_of(counter)[0] == 90 + comm.my_rank
            comm.barrier()
            assert words.tolist() == [0, 70 + peer, 90 + peer, 0]
            with pytest.raises(mscclpp.InvalidUsage, match="aligned"):
                connection.write_value(memories[peer], 4, 1)
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


def test_sent_objects():
    """Memories, semaphores' ends and endpoints travel as bytes of the user's choice, such as pickle's."""

    def body(bootstrap):
        rank, peer = bootstrap.get_rank(), 1 - bootstrap.get_rank()

        def exchange(thing):
            bootstrap.send(pickle.dumps(thing), peer, 0)
            return pickle.loads(bootstrap.recv(peer, 0))

        context = mscclpp.Context()
        endpoint = context.create_endpoint(mscclpp.EndpointConfig(SHARED_MEMORY, mscclpp.DeviceType.CPU))
        connection = context.connect(endpoint, exchange(endpoint))
        stub = mscclpp.SemaphoreStub(connection)
        semaphore = mscclpp.Semaphore(stub, exchange(stub))
        buffer = mscclpp.HostBuffer(64)
        memory = context.register_memory(buffer.data(), 64, SHARED_MEMORY)
        channel = mscclpp.MemoryChannel(semaphore, exchange(memory), memory)
        words = words_of(buffer)
        words[0] = rank + 1
        handle = channel.device_handle()
        handle.put(8, 0, 8)
        handle.signal()
        handle.wait()
        assert words[1] == peer + 1
        with pytest.raises(TypeError):  # addresses of this process
            pickle.dumps(handle)
        bootstrap.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_switch_channels(ranks):
    def body(bootstrap):
        with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
            everyone = list(range(comm.nranks))
            connection = mscclpp.connect_nvls_collective(comm.communicator, everyone, 4096, mscclpp.DeviceType.CPU)
            assert connection.buffer_size() == 4096 and 4096 % connection.granularity() == 0
            buffer = mscclpp.HostBuffer(4096)
            channel = connection.bind_allocated_memory(buffer.data(), 1024)
            assert channel.get_device_ptr() == buffer.data()
            handle = channel.device_handle()
            assert (handle.device_ptr, handle.mc_ptr, handle.buffer_size) == (buffer.data(), 0, 1024)
            for _ in range(3):
                handle.signal()
                handle.wait()
            comm.barrier()
            assert not handle.poll()
            with pytest.raises(mscclpp.InvalidUsage, match="every rank must offer the same"):
                connection.bind_allocated_memory(buffer.data(), 16 * (1 + comm.my_rank))
        return True

    assert run_threads(ranks, body, timeout=60) == [True] * ranks


@pytest.mark.skipif(mscclpp.has_cuda, reason="this build has CUDA")
def test_gpus_need_cuda():
    with single_rank() as comm:
        for call in (
            lambda: mscclpp.connect_nvls_collective(comm.communicator, [0], 4096),
            lambda: mscclpp.ProxyService(),
            lambda: mscclpp.Fifo(),
        ):
            with pytest.raises(mscclpp.InvalidUsage, match="this build of mscclpp has no CUDA"):
                call()


@pytest.fixture(scope="module")
def own():
    """A rank connected with itself, and a channel of each kind."""
    with single_rank() as comm:
        connections = comm.make_connection([0], SHARED_MEMORY)
        buffer = mscclpp.HostBuffer(64)
        memory = comm.make_memory_channels(buffer, connections)[0].device_handle()
        yield comm, connections, memory


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda comm, _, __: comm.my_ib_device(8), "IB0 to IB7"),
        (lambda comm, _, __: comm.make_connection([0, 1], {0: SHARED_MEMORY}), "none for rank 1"),
        (lambda comm, _, __: comm.make_connection([0], mscclpp.Transport.Unknown), "transport"),
        (lambda comm, connections, _: comm.register_local_memory(np.zeros(4), connections), "HostBuffer"),
        (lambda comm, connections, _: comm.register_local_memory([1, 2], connections), "tensor is a list"),
        (lambda comm, _, __: comm.send([1], 0, 1), "tensor is a list"),
        (lambda comm, _, __: comm.recv(np.frombuffer(bytes(8)), 0, 1), "read-only"),
        (lambda _, __, handle: handle.put(0, 60, 8), "8 bytes at offset 60 exceeds this rank's memory of 64 bytes"),
        (lambda _, __, handle: handle.put(57, 0, 8), "exceeds the peer's memory"),
        (lambda _, __, handle: handle.get(0, 0, 65), "exceeds"),
        (lambda _, __, handle: handle.put(2**64 - 8, 0, 16), "exceeds"),
        (lambda _, __, ___: proxy_service(fifo_size=3), "power of two"),
        (lambda _, __, ___: proxy_service(fifos=0), "FIFOs"),
        (lambda _, __, ___: mscclpp.Fifo(6, mscclpp.DeviceType.CPU), "power of two"),
        (lambda _, __, ___: mscclpp.Fifo(8, mscclpp.DeviceType.Unknown), "DeviceType::CPU"),
        (lambda _, __, ___: proxy_service().base_port_channel(0), "no semaphore 0"),
        (lambda _, __, ___: proxy_service().port_channel(3, 0, 0), "no semaphore 3"),
        (lambda _, __, ___: proxy_service().next_memory_id(0), "positive count"),
        (lambda comm, _, __: mscclpp.connect_nvls_collective(comm.communicator, [], 8, mscclpp.DeviceType.CPU), "rank"),
    ],
)
def test_wrong_calls(own, call, sentence):
    with pytest.raises(mscclpp.InvalidUsage, match=sentence):
        call(*own)


def test_names():
    with single_rank() as comm:
        assert comm.my_ib_device(2) == mscclpp.Transport.IB2
    for call in (comm.make_semaphores, lambda _: comm.make_connection([], SHARED_MEMORY)):
        with pytest.raises(mscclpp.InvalidUsage, match="closed"):
            call({})
