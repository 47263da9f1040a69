"""MSCCL's language in Python: programs of chunks, on CPU ranks against numpy, and what is refused."""

import mscclpp
import numpy as np
import pytest
from mscclpp.language.msccl import (
    XML,
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Buffer,
    Check,
    CustomCollective,
    MSCCLProgram,
    Reduce,
    ReduceScatter,
    ThreadblockPolicy,
    Topology,
    chunk,
    fully_connected,
)
from rank_threads import run_threads


def allreduce_ring(ranks, instances=1, channels=1, protocol="Simple", **options):
    """Reduces around the ring, then copies around it; each chunk in one of several channels."""
    collective = AllReduce(ranks, 1, True)
    with MSCCLProgram("allreduce_ring", fully_connected(ranks), collective, instances, protocol, **options) as program:
        for part in range(ranks):
            at = chunk(part, Buffer.input, part)
            for step in range(1, ranks):
                at = chunk((part + step) % ranks, Buffer.input, part).reduce(at, ch=part % channels)
            for step in range(ranks, 2 * ranks - 1):
                at = at.copy((part + step) % ranks, Buffer.input, part, ch=part % channels)
    return program


def allgather_ring(ranks, instances=1, **options):
    with MSCCLProgram("allgather_ring", None, AllGather(ranks, 1, False), instances, **options) as program:
        for rank in range(ranks):
            at = chunk(rank, Buffer.input, 0).copy(rank, Buffer.output, rank)
            for step in range(1, ranks):
                at = at.copy((rank + step) % ranks, Buffer.output, rank)
    return program


def allreduce_allpairs(ranks, instances=1, protocol="LL", **options):
    """Each rank sends its parts to their owners, who sum them up and send the sums; aggregated where they are side by
    side."""
    collective = AllReduce(ranks, ranks, True)
    with MSCCLProgram("allpairs", fully_connected(ranks), collective, instances, protocol, **options) as program:
        for owner in range(ranks):
            for rank in range(ranks):
                if rank != owner:
                    part = chunk(rank, Buffer.input, owner * ranks, ranks)
                    part.copy(owner, "scratch", (rank - (rank > owner)) * ranks)
        for owner in range(ranks):
            for other in range(ranks - 1):
                for index in range(ranks):
                    own = chunk(owner, Buffer.input, owner * ranks + index)
                    own.reduce(chunk(owner, "scratch", other * ranks + index))
            for rank in range(ranks):
                if rank != owner:
                    parts = [chunk(owner, Buffer.input, owner * ranks + index) for index in range(ranks)]
                    whole = parts[0]
                    for part in parts[1:]:
                        whole = whole.group(part)
                    whole.copy(rank, Buffer.input, owner * ranks)
    return program


def reducescatter_manual(ranks, **options):
    """Thread blocks by hand: block of a peer sends to it and receives from it."""
    with MSCCLProgram("reducescatter", None, ReduceScatter(ranks, 1, False), 1,
                      threadblock_policy=ThreadblockPolicy.manual, **options) as program:  # fmt: skip
        for owner in range(ranks):
            total = chunk(owner, Buffer.input, owner).copy(owner, Buffer.output, 0, sendtb=ranks)
            for rank in range(ranks):
                if rank != owner:
                    sent = chunk(rank, Buffer.input, owner).copy(owner, "scratch", rank, sendtb=owner, recvtb=rank)
                    total = total.reduce(sent, sendtb=ranks)
    return program


def alltoall(ranks, **options):
    with MSCCLProgram("alltoall", None, AllToAll(ranks, 2, False), 1, **options) as program:
        for src in range(ranks):
            for dst in range(ranks):
                for part in chunk(src, Buffer.input, 2 * dst, 2).split(2):
                    part.copy(dst, Buffer.output, 2 * src + part.index % 2)
    return program


class ToNext(CustomCollective):
    """Ranks 1 and on get the input of the rank before."""

    def expected(self):
        return {(rank, index): [(rank - 1, index)] for rank in range(1, self.num_ranks)
                for index in range(self.chunk_factor)}  # fmt: skip


def to_next(ranks, **options):
    with MSCCLProgram("to_next", None, ToNext(ranks, 2), 1, **options) as program:
        for rank in range(ranks - 1):
            chunk(rank, Buffer.input, 0, 2).copy(rank + 1, Buffer.output, 0)
    return program


def of_root(collective, ranks):
    with MSCCLProgram(collective.__name__, None, collective(ranks, 1, root=1), 1) as program:
        if collective is Broadcast:
            for rank in range(ranks):
                chunk(1, Buffer.input, 0).copy(rank, Buffer.output, 0)
        else:
            total = chunk(1, Buffer.input, 0).copy(1, Buffer.output, 0)
            for rank in (r for r in range(ranks) if r != 1):
                total = total.reduce(chunk(rank, Buffer.input, 0))
    return program


def total(inputs):
    return [np.sum(inputs, axis=0)] * len(inputs)


def parts_of(inputs, function):
    parts = [np.split(data, len(inputs)) for data in inputs]
    return [function([part[rank] for part in parts]) for rank in range(len(inputs))]


PROGRAMS = {
    "allreduce ring": (allreduce_ring, {}, total),
    "allreduce ring, 3 instances on 2 channels": (allreduce_ring, {"instances": 3, "channels": 2}, total),
    "allreduce ring in packets": (allreduce_ring, {"protocol": "LL"}, total),
    "allreduce ring without fusion": (allreduce_ring, {"instr_fusion": False}, total),
    "allpairs": (allreduce_allpairs, {}, total),
    "allpairs in batches": (allreduce_allpairs, {"protocol": "Simple", "instances": 2,
                                                 "interleaved_replication": False}, total),
    "allgather ring": (allgather_ring, {"instances": 2}, lambda inputs: [np.concatenate(inputs)] * len(inputs)),
    "reducescatter by hand": (reducescatter_manual, {}, lambda inputs: parts_of(inputs, lambda p: np.sum(p, axis=0))),
    "alltoall": (alltoall, {}, lambda inputs: parts_of(inputs, np.concatenate)),
}  # fmt: skip
IN_PLACE = {"allreduce_ring", "allpairs"}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_proven(name, ranks):
    write, options, _ = PROGRAMS[name]
    program = write(ranks, **options)
    assert program.check() is True
    plan = program.compile()
    assert plan.ranks == ranks and plan.name == program.name
    assert mscclpp.Plan.from_text(plan.to_text()).verified().ranks == ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_results(ranks):
    plans = {name: write(ranks, **options).compile() for name, (write, options, _) in PROGRAMS.items()}

    def check(bootstrap):
        rank = bootstrap.get_rank()
        communicator = mscclpp.Communicator(bootstrap)
        executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
        memory = np.zeros(1 << 12, "float32"), np.zeros(1 << 14, "float32")
        for name, (_, _, expect) in PROGRAMS.items():
            algorithm = mscclpp.make_algorithm(plans[name], rank)
            for count in (ranks, ranks * 251):
                inputs = [np.random.default_rng(r).integers(0, 9, count).astype("float32") for r in range(ranks)]
                expected = expect(inputs)[rank]
                data, result = memory[0][:count], memory[1][: expected.size]
                if plans[name].in_place:
                    result = data
                for _ in range(2):
                    result[:] = 77
                    data[:] = inputs[rank]
                    done = algorithm.execute(communicator, data.ctypes.data, result.ctypes.data, data.nbytes,
                                             result.nbytes, mscclpp.DataType.float32, executor=executor)  # fmt: skip
                    assert done == mscclpp.CommResult.CommSuccess and np.array_equal(result, expected), (name, count)
        bootstrap.barrier()
        executor.reset()
        return True

    assert all(run_threads(ranks, check, 60))


def test_collectives_of_users_and_of_roots():
    assert to_next(3).check() and to_next(3, protocol="LL").check()
    assert of_root(Broadcast, 3).check() and of_root(Reduce, 3).check()
    with MSCCLProgram("to_next", None, ToNext(2, 2), 1), pytest.raises(mscclpp.InvalidUsage):
        chunk(0, Buffer.input, 0).copy(1, Buffer.output, 1)  # the other chunk
        Check()


def test_xml(capsys):
    with MSCCLProgram("copies", None, AllGather(2, 1, False), 1):
        for rank in range(2):
            at = chunk(rank, Buffer.input, 0).copy(rank, Buffer.output, rank)
            at.copy(1 - rank, Buffer.output, rank)
        assert Check()
        XML()
    text = capsys.readouterr().out
    assert text.count("<gpu ") == 2 and 'coll="allgather"' in text
    plan = mscclpp.Plan.from_xml(text).verified()
    assert plan.ranks == 2 and plan.name == "copies"
    again = mscclpp.Plan.from_xml(plan.to_xml()).verified()
    assert again.ranks == 2 and again.name == "copies"
    with pytest.raises(mscclpp.InvalidUsage):
        mscclpp.Plan.from_xml(text.replace('type="s"', 'type="x"'))


def test_references():
    with MSCCLProgram("references", None, AllReduce(2, 1, True), 1):
        assert chunk(0, "none", 0) is None and chunk(0, Buffer.output, 0, 2) is not None  # in place: the input
        whole = chunk(0, Buffer.input, 0, 2)
        assert repr(whole) == "<Ref: rank 0, input[0:2]>"
        left, right = whole.split(2)
        assert (left.index, right.index, left.group(right).size, right.group(left).index) == (0, 1, 2, 0)
        copied = left.copy(1, "own")
        assert (copied.rank, copied.buffer, copied.index) == (1, "own", 0)
        assert right.copy(1, "own").index == 1 and whole.copy(1, "own").index == 2  # behind what is there
        assert whole.copy(1, "own", 0).index == 0 and right.copy(1).index == 1


def test_wrong_uses():
    def refused(action, match):
        with pytest.raises(mscclpp.InvalidUsage, match=match) as caught:
            action()
        assert "test_plan_msccl.py:" in str(caught.value)

    line = Topology("line", [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    refused(lambda: chunk(0, Buffer.input, 0), "there is no program")
    refused(lambda: MSCCLProgram("x", line, AllReduce(2, 1, True), 1), "3 ranks, the collective 2")
    refused(lambda: MSCCLProgram("x", None, AllReduce(2, 1, True), 1, "LL8"), "protocol")
    with MSCCLProgram("x", line, AllReduce(3, 1, True), 1):
        first, second = chunk(0, Buffer.input, 0), chunk(1, Buffer.input, 0)
        refused(lambda: first.copy(2), "no link from rank 0 to rank 2")
        refused(lambda: chunk(2, Buffer.input, 0).reduce(first), "no link")
        refused(lambda: first.split(2), "cannot be split")
        refused(lambda: first.reduce(chunk(1, "s", 0)), "None is no reference to chunks")
        refused(lambda: first.group(None), "None is no reference to chunks")
        refused(lambda: chunk(3, Buffer.input, 0), "rank 3 does not exist")
        refused(lambda: chunk(0, Buffer.input, -1), "numbered from 0")
        refused(lambda: chunk(0, Buffer.input, 3), "which has 3")
        refused(lambda: first.copy(1, sendtb=10**6), "sendtb is 1000000; blocks are numbered from 0 to 1023")
        refused(lambda: first.group(second), "group|beside|rank")
        refused(lambda: MSCCLProgram("y", None, AllReduce(3, 1, True), 1).__enter__(), "not nested")
        second.reduce(first)
        first.copy(1, Buffer.input, 1)
        stale = chunk(1, Buffer.input, 2)
        first.copy(1, Buffer.input, 2)
        refused(lambda: stale.copy(0), "overwritten|stale")
        with pytest.raises(mscclpp.InvalidUsage, match="output chunk 0 of rank 2 does not hold"):
            Check()


def test_a_wrong_program_names_the_line():
    with MSCCLProgram("double", None, AllReduce(2, 1, True), 1) as program:
        for index in range(2):
            for rank in range(2):
                chunk(rank, Buffer.input, index).reduce(chunk(1 - rank, Buffer.input, index))  # the second sums twice
    with pytest.raises(mscclpp.InvalidUsage, match="rank .*block|chunk"):
        program.check()
    with pytest.raises(mscclpp.InvalidUsage):
        mscclpp.make_algorithm(program.compile(), 0)
