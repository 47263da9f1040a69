"""MSCCL++'s language in Python: programs become proven plans, and wrong ones raise with the line that is wrong."""

import json
import pathlib

import mscclpp
import plan_programs
import pytest
from mscclpp.language import (
    JSON,
    AlgoSpec,
    AllGather,
    AllReduce,
    AllToAll,
    Buffer,
    BufferType,
    Chunk,
    CollectiveProgram,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    ReduceScatter,
    ReplicationPolicy,
    Semaphore,
    SendRecv,
    SwitchChannel,
    SyncType,
    TestCollective,
    ThreadBlockGroup,
)
from plan_programs import PROGRAMS, make_spec


def make_plan(program, ranks, **more):
    algo, collective, options, arguments = PROGRAMS[program]
    return algo(make_spec(collective(ranks), **{**options, **more}), **arguments).compile().verified()


def names_of(program, rank=0, block=0):
    operations = json.loads(program.to_json())["gpus"][rank]["threadblocks"][block]["ops"]
    return [operation["name"] for operation in operations if operation["name"] != "nop"]


# The modules and the names that programs of MSCCL++ import from them.
MODULES = {
    "channel": "MemoryChannel PortChannel SwitchChannel BufferType SyncType ChannelType ReduceOperationType",
    "collectives": "Collective AllReduce AllGather ReduceScatter AllToAll SendRecv TestCollective",
    "general": "JSON",
    "internal.globals": "get_program",
    "internal.types": """AlgoSpec BufferType ChannelType Chunk ReduceOperationType ReplicationPolicy SyncType""",
    "loop": "LoopIterationContext",
    "program": "CollectiveProgram",
    "rank": "Rank Buffer BaseBuffer Semaphore",
    "thread_block_group": "ThreadBlockGroup",
    "utils": "AlgoSpec ReplicationPolicy",
}


@pytest.mark.parametrize("module", MODULES)
def test_names(module):
    imported = __import__(f"mscclpp.language.{module}", fromlist=["*"])
    assert [name for name in MODULES[module].split() if not hasattr(imported, name)] == []


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_proven(name, ranks):
    plan = make_plan(name, ranks)
    assert plan.ranks == ranks and plan.name.startswith("test_all")
    blocks = {"packets, 2 instances": 2, "two-shot": 2, "reads": 3}
    assert plan.blocks(0) == blocks.get(name, 1)


def test_program_of_the_guide():
    """Its relaxed signals are ordered."""
    spec = plan_programs.guide_spec(4, 4)
    assert spec is not mscclpp.AlgoSpec and isinstance(spec, AlgoSpec)
    program = plan_programs.allreduce_nvls(spec)
    # Relaxed, it is not right: the last waits do not show the stores.
    assert names_of(program) == ["signal", "wait", "glres", "signal", "wait"]
    plan = program.compile().verified()
    assert plan.blocks(0) == 4
    assert plan.in_place and plan.message_range == (1 << 20, 48 << 30)


def test_relaxed_signals_stay_where_they_suffice():
    with CollectiveProgram("packets", AllReduce(2), 2, use_double_scratch_buffer=True) as program:
        scratch = [Buffer(rank, 2) for rank in range(2)]
        for r in range(2):
            channel = MemoryChannel(1 - r, r)
            channel.put_packets(scratch[1 - r][:], Rank(r).get_input_buffer()[:], tb=0)
            Rank(r).reduce(Rank(r).get_input_buffer()[:], [scratch[r][:]], tb=0,
                           dst_chunk=Rank(r).get_output_buffer()[:], packet=True)  # fmt: skip
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, relaxed=True)
    assert names_of(program) == ["ppkt", "repkt", "rlxsignal", "rlxwait"]
    program.compile().verified()


def test_operations_and_their_names_in_plans():
    """Each method, by the operation that it becomes."""
    with CollectiveProgram("all", TestCollective(2, 4, 4), 2, instr_fusion=False, auto_sync=False) as program:
        rank, peer = Rank(0), Rank(1)
        input, output = rank.get_input_buffer(), rank.get_output_buffer()
        scratch, remote = Buffer(0, 4), Buffer(1, 4)
        memory, port = MemoryChannel(1, 0), PortChannel(1, 0)
        switch = SwitchChannel([0, 1], BufferType.input).at_rank(0)
        semaphore = Semaphore(0, 1)
        back_memory, back_port = MemoryChannel(0, 1), PortChannel(0, 1)
        operations = [
            ("copy", lambda: rank.copy(output[0], input[0], tb=0)),
            ("cpkt", lambda: rank.copy_packets(scratch[0], input[0], tb=0)),
            ("upkt", lambda: rank.unpack_packets(output[0], scratch[0], tb=0)),
            ("re", lambda: rank.reduce(input[0], [scratch[1]], tb=0, dst_chunk=output[0])),
            ("repkt", lambda: rank.reduce(input[0], [scratch[0]], tb=0, dst_chunk=output[0], packet=True)),
            ("barrier", lambda: rank.barrier([0, 1])),
            ("sem_acquire", lambda: semaphore.acquire(tb=0, data_sync=SyncType.none)),
            ("sem_release", lambda: semaphore.release(tb=0, data_sync=SyncType.none)),
            ("signal", lambda: memory.signal(tb=0, data_sync=SyncType.none)),
            ("wait", lambda: memory.wait(tb=0)),
            ("get", lambda: memory.get(output[0], peer.get_input_buffer()[0], tb=0)),
            ("put", lambda: memory.put(remote[1], input[0], tb=0)),
            ("ppkt", lambda: memory.put_packets(remote[0], input[0], tb=0)),
            ("rppkt", lambda: memory.read_put_packets(remote[0], scratch[0], tb=0)),
            ("rre", lambda: memory.reduce(input[0], [peer.get_input_buffer()[0]], tb=0, local_dst_chunk=output[0])),
            ("put", lambda: port.put(remote[1], input[0], tb=0)),
            ("signal", lambda: port.signal(tb=0)),
            ("wait", lambda: port.wait(tb=0)),
            ("flush", lambda: port.flush(tb=0)),
            ("glre", lambda: switch.reduce(buffer_offset=0, size=1, dst_chunk=output[0], tb=0)),
            ("gstore", lambda: switch.broadcast(src_chunk=output[0], buffer_offset=0, size=1, tb=0)),
        ]
        for _, operation in operations:
            operation()
        back_memory.signal(tb=0)
        back_memory.wait(tb=0)
        back_port.signal(tb=0)
        back_port.wait(tb=0)
        assert json.loads(JSON()) == json.loads(program.to_json())
    assert names_of(program) == [name for name, _ in operations]


def test_puts_with_signals():
    with CollectiveProgram("ports", SendRecv(2), 2) as program:
        for r in range(2):
            channel = PortChannel(1 - r, r)
            source, destination = Rank(r).get_input_buffer()[0], Rank(1 - r).get_output_buffer()[0]
            channel.signal(tb=0)
            channel.wait(tb=0)
            if r == 0:
                channel.put_with_signal(destination, source, tb=0)
                channel.flush(tb=0)
            else:
                channel.put_with_signal_and_flush(destination, source, tb=0)
            channel.wait(tb=0)
    assert names_of(program, 1)[2:] == ["pwsf", "wait"]
    program.compile().verified()


def test_buffers_and_chunks():
    with CollectiveProgram("chunks", AllToAll(2, 3), 2):
        rank = Rank(1)
        assert len(rank.get_input_buffer()) == rank.get_output_buffer().size == 6
        first, second = Buffer(1, 2), Buffer(1, 3)
        assert (first[0].index, second[0].index, second[1:].size, second[1:].index) == (0, 2, 2, 3)
        chunk = rank.get_input_buffer()[2:5]
        assert isinstance(chunk, Chunk) and (chunk.rank, chunk.buffer, chunk.index, chunk.size) == \
            (1, BufferType.input, 2, 3)  # fmt: skip
        assert repr(chunk) == "<Chunk: rank 1, input[2:5]>"
        for wrong in (lambda: first[2], lambda: first[1:1], lambda: first[-1], lambda: first[0:2:2]):
            with pytest.raises(mscclpp.InvalidUsage, match=r"^test_plan_language.py:\d+: chunks"):
                wrong()


@pytest.mark.parametrize("collective", [AllReduce, AllGather, ReduceScatter, AllToAll, SendRecv])
def test_sizes_of_collectives(collective):
    made = collective(num_ranks=4, chunk_factor=2, inplace=False)
    sizes = {"allreduce": (8, 8), "allgather": (2, 8), "reducescatter": (8, 2), "alltoall": (8, 8), "sendrecv": (2, 2)}
    with CollectiveProgram("sizes", made, 4):
        rank = Rank(3)
        assert (rank.get_input_buffer().size, rank.get_output_buffer().size) == sizes[made.name]


def line_of(text):
    lines = pathlib.Path(__file__).read_text().splitlines()
    return f"test_plan_language.py:{next(i for i, line in enumerate(lines, 1) if line.rstrip().endswith(text))}"


def test_faults_name_rank_block_operation_and_line():
    def missing_wait(spec):
        with CollectiveProgram.from_spec(spec) as program:
            channel = [MemoryChannel(1, 0), MemoryChannel(0, 1)]
            for r in range(2):
                rank = Rank(r)
                rank.copy(rank.get_output_buffer()[r], rank.get_input_buffer()[0], tb=0)
                channel[r].signal(tb=0)
                channel[r].wait(tb=0)
                channel[r].put(Rank(1 - r).get_output_buffer()[r], rank.get_input_buffer()[0], tb=1)  # racing
        return program

    with pytest.raises(mscclpp.InvalidUsage) as caught:
        mscclpp.compile(algo=missing_wait, algo_spec=make_spec(AllGather(2)), rank=0)
    message = str(caught.value)
    assert "rank 0, block 1, operation 0 (transfer" in message and line_of("# racing") in message
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, mscclpp.Error)


def test_a_wrong_result_is_a_fault():
    def wrong(spec):
        with CollectiveProgram.from_spec(spec) as program:
            for r in range(2):
                Rank(r).copy(Rank(r).get_output_buffer()[0], Rank(r).get_input_buffer()[0], tb=0)
        return program

    with pytest.raises(mscclpp.InvalidUsage, match="output chunk"):
        wrong(make_spec(AllGather(2))).compile().verified()


def test_wrong_uses_name_the_line():
    def refused(action, match):
        with pytest.raises(mscclpp.InvalidUsage, match=match) as caught:
            action()
        assert "test_plan_language.py:" in str(caught.value)

    refused(lambda: Rank(0), "there is no program")
    refused(lambda: CollectiveProgram("x", AllReduce(2), 3), "3 ranks, its collective 2")
    refused(lambda: CollectiveProgram("x", AllReduce(2), 2, protocol="LL128"), "protocol")
    refused(lambda: CollectiveProgram("x", AllReduce(2), 2, instances=0), "instances")
    refused(lambda: ThreadBlockGroup(tb_list=[1, 1]), "once")
    with CollectiveProgram("x", AllReduce(2), 2):
        rank, channel = Rank(0), MemoryChannel(1, 0)
        own, theirs, scratch = rank.get_input_buffer(), Rank(1).get_input_buffer(), Buffer(0, 2)
        refused(lambda: Rank(2), "rank 2 does not exist")
        refused(lambda: MemoryChannel(0, 0), "to itself")
        refused(lambda: rank.copy(scratch[0], own[0]), "pass tb=")
        refused(lambda: rank.copy(scratch[0], own[0], tb=0, tb_group=ThreadBlockGroup([1])), "pass tb=")
        refused(lambda: rank.copy(scratch[0], own[0], tb=-1), "numbered from 0")
        refused(lambda: rank.copy(scratch[0], own[0], tb=10**9), "numbered from 0 to 1023")
        refused(lambda: rank.copy(scratch[0], own[0], tb="a"), "tb is 'a'; it is the number of a thread block")
        numpy = pytest.importorskip("numpy")
        assert own[numpy.int64(1)].index == 1
        rank.copy(scratch[numpy.int32(0)], own[0], tb=numpy.int64(0))
        refused(lambda: rank.copy(scratch[0], own[0:2], tb=0), "sizes 2 and 1")
        refused(lambda: rank.copy(scratch[0], theirs[0], tb=0), "rank 1's")
        refused(lambda: channel.put_packets(theirs[0], own[0], tb=0), "packets lie in scratch")
        refused(lambda: channel.get(theirs[0], own[0], tb=0), "rank 0's|rank 1's")
        refused(lambda: SwitchChannel([0], BufferType.input), "two ranks")
        refused(lambda: SwitchChannel([0, 1], BufferType.input).at_rank(2), "not among")
        refused(lambda: Semaphore(0, -1), "initial value -1; pass 0 or more")
        refused(lambda: rank.barrier([]), "no thread blocks")
        refused(lambda: LoopIterationContext(0, 1).__enter__(), "positive unit")
        refused(lambda: CollectiveProgram("y", AllReduce(2), 2).__enter__(), "not nested")
        with LoopIterationContext(unit=512, num_chunks=1):
            refused(lambda: LoopIterationContext(512, 1).__enter__(), "nested")
        with pytest.raises(mscclpp.InvalidUsage, match="operator of a plan is that of each call"):
            rank.reduce(own[0], [scratch[0]], tb=0, reduce_op=ReduceOperationType.max)


def test_what_compile_refuses():
    spec = make_spec(AllReduce(2))
    with pytest.raises(mscclpp.InvalidUsage, match="returned None"):
        mscclpp.compile(algo=lambda spec: None, algo_spec=spec, rank=0)
    with pytest.raises(mscclpp.InvalidUsage, match="3 ranks, not 2"):
        mscclpp.compile(algo=lambda spec: CollectiveProgram("x", AllReduce(3), 3), algo_spec=spec, rank=0)


def test_a_failing_program_leaves_none_behind():
    with pytest.raises(KeyError), CollectiveProgram("x", AllReduce(2), 2):
        raise KeyError
    with CollectiveProgram("y", AllReduce(2), 2):
        Rank(0)


class TestFaultsOfMSCCLpp:
    """reference/plans.md 2.5: what its compiler gets wrong."""

    def test_an_empty_program_is_refused(self):
        with CollectiveProgram("empty", AllReduce(2), 2) as program:
            pass
        with pytest.raises(mscclpp.InvalidUsage, match="no operations"):
            program.to_json()

    def test_instances_are_made_once(self):
        plan = make_plan("packets, 2 instances", 2)
        assert plan.blocks(0) == 2 and json.loads(plan.to_json())["gpus"][0]["input_chunks"] == 4
        program = plan_programs.packet_allreduce(make_spec(AllReduce(2), instances=3))
        assert program.to_json() == program.to_json()

    def test_no_replication(self):
        plan = make_plan("packets", 2, instances=4, replication_policy=ReplicationPolicy.none)
        assert plan.blocks(0) == 1

    def test_a_switch_without_fusion(self):
        """It is read back, and executed."""
        spec = plan_programs.guide_spec(2, 1)
        spec.instr_fusion = False

        def unfused(spec):
            with CollectiveProgram.from_spec(spec) as program:
                channels = [MemoryChannel(1, 0), MemoryChannel(0, 1)]
                switch = SwitchChannel([0, 1], BufferType.input)
                for r in range(2):
                    own = Rank(r).get_input_buffer()
                    channels[r].signal(tb=0)
                    channels[r].wait(tb=0)
                    switch.at_rank(r).reduce(r, 1, own[r], tb=0)
                    switch.at_rank(r).broadcast(own[r], r, 1, tb=0)
                    channels[r].signal(tb=0)
                    channels[r].wait(tb=0)
            return program

        text = unfused(spec).to_json()
        assert '"glre"' in text.replace(" ", "")
        assert mscclpp.Plan.from_json(text).verified().blocks(0) == 1
        assert mscclpp.compile(unfused, spec, 1).collective == "allreduce"

    def test_signals_of_many_ranks(self):
        """No operation names more than eight channels."""
        operations = json.loads(plan_programs.allreduce_nvls(plan_programs.guide_spec(12, 1)).to_json())
        lists = [op["channel_ids"] for gpu in operations["gpus"] for op in gpu["threadblocks"][0]["ops"]
                 if "channel_ids" in op]  # fmt: skip
        assert max(map(len, lists)) <= 8 and sum(map(len, lists)) == 12 * 4 * 11

    def test_plans_are_not_stale(self):
        """Each field of the specification, and each argument, makes another plan."""
        variants = [{}, {"num_threads_per_block": 32}, {"instances": 2}, {"buffer_alignment": 32},
                    {"min_message_size": 1}, {"max_message_size": 9}, {"reuse_resources": True},
                    {"name": "other"}]  # fmt: skip
        assert len({make_plan("packets", 2, **variant).to_json() for variant in variants}) == len(variants)
        with pytest.raises(mscclpp.InvalidUsage, match="overwrites"):
            make_plan("packets", 2, use_double_scratch_buffer=False)
        assert make_plan("ring in a loop", 2).to_json() != make_plan("ring", 2).to_json()

    def test_barriers_are_numbered_by_program(self):
        plans = [make_plan("two-shot", 2).to_json() for _ in range(2)]
        assert plans[0] == plans[1]


def test_json_of_others(tmp_path):
    text = make_plan("two-shot", 2).to_json()
    again = mscclpp.Plan.from_json(text).verified()
    assert again.to_json() == text
    for wrong, match in (("{", "JSON|parse"), ('{"name": 3}', "name|plan"), (text.replace('"wait"', '"wayt"'), "wayt")):
        with pytest.raises(mscclpp.InvalidUsage, match=match):
            mscclpp.Plan.from_json(wrong)
    operations = json.loads(text)
    block = operations["gpus"][0]["threadblocks"][0]
    block["ops"] = [op for op in block["ops"] if op["name"] != "signal"]
    match = "waits for ever for a signal of rank 0, which sends it no more in this call; at rank 1, block 0"
    with pytest.raises(mscclpp.InvalidUsage, match=match):
        mscclpp.Plan.from_json(json.dumps(operations)).verified()
