"""Programs in MSCCL++'s language that the tests compile and execute. The first is that of MSCCL++'s guide."""

import mscclpp
from mscclpp.language.channel import BufferType, MemoryChannel, PortChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllGather, AllReduce
from mscclpp.language.loop import LoopIterationContext
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Buffer, Rank
from mscclpp.language.thread_block_group import ThreadBlockGroup


def allreduce_nvls(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """Define an allreduce using NVLS (NVLink SHARP)."""
    gpu_size = spec.world_size

    with CollectiveProgram(
        spec.name,
        spec.collective,
        gpu_size,
        instances=spec.instances,
        protocol=spec.protocol,
        num_threads_per_block=spec.num_threads_per_block,
        min_message_size=spec.min_message_size,
        max_message_size=spec.max_message_size,
    ) as program:
        # Create NVLS channel for all GPUs
        nvls_chan = SwitchChannel(
            rank_list=[gpu for gpu in range(gpu_size)],
            buffer_type=BufferType.input
        )  # fmt: skip

        # Create memory channels for synchronization
        channels = {}
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)] = MemoryChannel(peer, gpu)

        # Synchronize before operation
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True, data_sync=SyncType.after)

        # Perform reduce and broadcast
        for gpu in range(gpu_size):
            rank = Rank(gpu)
            input_buffer = rank.get_input_buffer()
            nvls_chan.at_rank(gpu).reduce(
                buffer_offset=gpu, size=1,
                dst_chunk=input_buffer[gpu:gpu+1], tb=0
            )  # fmt: skip
            nvls_chan.at_rank(gpu).broadcast(
                src_chunk=input_buffer[gpu:gpu+1],
                buffer_offset=gpu, size=1, tb=0
            )  # fmt: skip

        # Synchronize after operation
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True, data_sync=SyncType.before)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True)

    return program


def guide_spec(world_size, nranks_per_node):
    """As the guide's setup_algorithm() makes it."""
    return mscclpp.language.AlgoSpec(
        name="allreduce_nvls",
        collective=AllReduce(world_size, 1, True),
        nranks_per_node=nranks_per_node,
        world_size=world_size,
        in_place=True,
        instances=nranks_per_node,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )


def make_spec(collective, **options):
    arguments = {
        "name": f"test_{collective.name}",
        "collective": collective,
        "nranks_per_node": collective.num_ranks,
        "world_size": collective.num_ranks,
        "num_threads_per_block": 64,
        **options,
    }
    return mscclpp.AlgoSpec(**arguments)


def packet_allreduce(spec, one_reduction=True):
    """Each rank sends its input to all as packets, and sums what it gets."""
    n = spec.world_size
    with CollectiveProgram.from_spec(spec) as program:
        scratch = [Buffer(rank, n * n) for rank in range(n)]
        for r in range(n):
            source = Rank(r).get_input_buffer()[:]
            for peer in range(n):
                if peer != r:
                    MemoryChannel(peer, r).put_packets(scratch[peer][r * n : (r + 1) * n], source, tb=0)
        for r in range(n):
            rank = Rank(r)
            others = [scratch[r][p * n : (p + 1) * n] for p in range(n) if p != r]
            rank.reduce(rank.get_input_buffer()[:], others, tb=0, dst_chunk=rank.get_output_buffer()[:], packet=True)
    return program


def ring_allgather(spec, channel=MemoryChannel, unit=0, group=None):
    """Each rank passes on what it got, through memory or port channels, as a whole or in a loop of pieces."""
    n = spec.world_size
    tb = {"tb": 0} if group is None else {"tb_group": group}
    with CollectiveProgram.from_spec(spec) as program:
        forward, backward = {}, {}
        for r in range(n):  # the two ends of a connection after each other, so that they are one between two ranks too
            forward[r], backward[(r + 1) % n] = channel((r + 1) % n, r), channel(r, (r + 1) % n)
        inputs = [Rank(r).get_input_buffer() for r in range(n)]
        outputs = [Rank(r).get_output_buffer() for r in range(n)]

        def write():
            for r in range(n):
                Rank(r).copy(outputs[r][r], inputs[r][0], **tb)
            for r in range(n):
                backward[r].signal(tb=0)  # the rank before may write here
            for r in range(n):
                forward[r].wait(tb=0)
            for step in range(n - 1):
                for r in range(n):
                    part = (r - step) % n
                    forward[r].put(outputs[(r + 1) % n][part], outputs[r][part], **tb)
                    forward[r].signal(tb=0)
                for r in range(n):
                    backward[r].wait(tb=0)
            if channel is PortChannel:
                for r in range(n):
                    forward[r].flush(tb=0)

        if unit:
            with LoopIterationContext(unit=unit, num_chunks=1):
                write()
        else:
            write()
    return program


def two_shot_allreduce(spec, blocks=2):
    """Each rank sums its part of all inputs, which a group of blocks reads, and writes it to all outputs."""
    n = spec.world_size
    group = ThreadBlockGroup(tb_list=range(blocks))
    with CollectiveProgram.from_spec(spec) as program:
        to = {(peer, r): MemoryChannel(peer, r) for r in range(n) for peer in range(n) if peer != r}

        def exchange():
            for r in range(n):
                rank = Rank(r)
                rank.barrier(list(range(blocks)))
                for peer in range(n):
                    if peer != r:
                        to[peer, r].signal(tb=0)
                for peer in range(n):
                    if peer != r:
                        to[peer, r].wait(tb=0)
                rank.barrier(list(range(blocks)))

        exchange()
        for r in range(n):
            rank = Rank(r)
            own, result = rank.get_input_buffer()[r], rank.get_output_buffer()[r]
            for index in range(n - 1):
                peer = (r + index + 1) % n
                to[peer, r].reduce(own if index == 0 else result, [Rank(peer).get_input_buffer()[r]], tb_group=group,
                                   local_dst_chunk=result)  # fmt: skip
            for peer in range(n):
                if peer != r:
                    to[peer, r].put(Rank(peer).get_output_buffer()[r], result, tb_group=group)
        exchange()
    return program


def copy_allgather(spec):
    """Each rank reads the inputs of all others; the last signal lets the callers go on."""
    n = spec.world_size
    with CollectiveProgram.from_spec(spec) as program:
        to = {(peer, r): MemoryChannel(peer, r) for r in range(n) for peer in range(n) if peer != r}
        for r in range(n):
            rank = Rank(r)
            peers = [peer for peer in range(n) if peer != r]
            for peer in peers:
                to[peer, r].signal(tb=0, data_sync=SyncType.none)
            rank.copy(rank.get_output_buffer()[r], rank.get_input_buffer()[0], tb=0)
            for peer in peers:
                to[peer, r].wait(tb=0, data_sync=SyncType.after)
                to[peer, r].get(rank.get_output_buffer()[peer], Rank(peer).get_input_buffer()[0], tb=0)
            for peer in peers:
                to[peer, r].signal(tb=0, data_sync=SyncType.before)
            for peer in peers:
                to[peer, r].wait(tb=0, data_sync=SyncType.none)
    return program


PROGRAMS = {
    "packets": (packet_allreduce, AllReduce, {"use_double_scratch_buffer": True, "protocol": "LL"}, {}),
    "packets, 2 instances": (packet_allreduce, AllReduce, {"use_double_scratch_buffer": True, "instances": 2}, {}),
    "ring": (ring_allgather, AllGather, {}, {}),
    "ring in a loop": (ring_allgather, AllGather, {}, {"unit": 512}),
    "ring over ports": (ring_allgather, AllGather, {}, {"channel": PortChannel}),
    "two-shot": (two_shot_allreduce, AllReduce, {}, {}),
    "reads": (copy_allgather, AllGather, {"instances": 3}, {}),
}
