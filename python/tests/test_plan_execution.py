"""Plans on CPU ranks: the programs of plan_programs.py, and the results against numpy."""

import pathlib

import mscclpp
import numpy as np
import pytest
from mscclpp.language import AllReduce, CollectiveProgram, MemoryChannel, Rank
from mscclpp.utils import torch_dtype_to_mscclpp_dtype
from plan_programs import PROGRAMS, allreduce_nvls, guide_spec, make_spec
from rank_threads import run_threads, single_rank
from test_processes import finish, run_python

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "05_plan.py"

# Of each chunk none, some and several packs; tails; less elements than chunks.
COUNTS = [1, 5, 1000, 4099]


def execute(algorithm, communicator, executor, data, result, op=mscclpp.ReduceOp.SUM):
    return algorithm.execute(
        comm=communicator,
        executor=executor,
        input_buffer=data.ctypes.data,
        output_buffer=result.ctypes.data,
        input_size=data.nbytes,
        output_size=result.nbytes,
        dtype=torch_dtype_to_mscclpp_dtype(data.dtype),
        op=op,
        stream=0,
    )


def inputs_of(ranks, count, dtype):
    return [np.random.default_rng(rank).integers(0, 8, count).astype(dtype) for rank in range(ranks)]


def check_programs(bootstrap, names, counts, dtypes):
    rank, ranks = bootstrap.get_rank(), bootstrap.get_n_ranks()
    communicator = mscclpp.Communicator(bootstrap)
    executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
    # The same memory in all calls, as the executor knows buffers by their addresses until reset().
    memory = np.zeros(max(counts), "float64"), np.zeros(max(counts) * ranks, "float64")
    for name in names:
        algo, collective, options, arguments = PROGRAMS[name]
        algorithm = mscclpp.compile(algo, make_spec(collective(ranks), **options), rank, **arguments)
        assert (algorithm.type, algorithm.collective) == (mscclpp.AlgorithmType.DSL, collective.kind.name)
        assert algorithm.constraint.world_size == ranks
        for dtype in dtypes:
            for count in counts:
                inputs = inputs_of(ranks, count, dtype)
                expected = np.sum(inputs, axis=0) if collective is AllReduce else np.concatenate(inputs)
                data, result = memory[0].view(dtype)[:count], memory[1].view(dtype)[: expected.size]
                data[:] = inputs[rank]
                for _ in range(3):
                    result[:] = 99
                    assert execute(algorithm, communicator, executor, data, result) == \
                        mscclpp.CommResult.CommSuccess, (name, dtype, count)  # fmt: skip
                    assert np.array_equal(result, expected), (name, dtype, count)
                bootstrap.barrier()
    bootstrap.barrier()
    executor.reset()
    return True


@pytest.mark.parametrize("ranks", [2, 4])
def test_programs(ranks):
    assert all(run_threads(ranks, lambda b: check_programs(b, PROGRAMS, COUNTS, ["float32", "int32", "float16"]), 120))


def check_operators(bootstrap):
    rank, ranks = bootstrap.get_rank(), bootstrap.get_n_ranks()
    communicator = mscclpp.Communicator(bootstrap)
    executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
    algo, collective, options, _ = PROGRAMS["packets"]
    algorithm = mscclpp.compile(algo, make_spec(collective(ranks), **options), rank)
    inputs = inputs_of(ranks, 100, "int32")
    functions = {"NOP": np.add, "SUM": np.add, "MIN": np.minimum, "MAX": np.maximum, "PROD": np.multiply}
    result = np.zeros(100, "int32")
    for name, function in functions.items():
        op = getattr(mscclpp.ReduceOp, name)
        assert execute(algorithm, communicator, executor, inputs[rank], result, op) == mscclpp.CommResult.CommSuccess
        assert np.array_equal(result, function.reduce(inputs)), name
    bootstrap.barrier()
    return True


def test_operators_are_those_of_the_call():
    assert all(run_threads(2, check_operators))


def run_guide(comm):
    """Approach 2 of MSCCL++'s guide, in processes; on CPU ranks the executor has a device type."""
    algorithm = mscclpp.compile(algo=allreduce_nvls, algo_spec=guide_spec(comm.nranks, 2), rank=comm.my_rank)
    assert algorithm.tags == {"nvls": 1} and algorithm.buffer_mode == mscclpp.CollectiveBufferMode.InPlace
    executor = mscclpp.Executor(comm.communicator, device_type=mscclpp.DeviceType.CPU)
    count = 1 << 18
    data = inputs_of(comm.nranks, count, "float32")[comm.my_rank]
    expected = np.sum(inputs_of(comm.nranks, count, "float32"), axis=0)
    assert execute(algorithm, comm.communicator, executor, data, data) == mscclpp.CommResult.CommSuccess
    comm.barrier()
    executor.reset()
    return bool(np.array_equal(data, expected))


def test_program_of_the_guide():
    assert mscclpp.run(2, run_guide, timeout=120) == [True, True]


def test_plans_of_files(tmp_path):
    """A plan in MSCCL++'s schema, by its own class and by an algorithm of a collection."""
    algo, collective, options, _ = PROGRAMS["packets"]
    text = algo(make_spec(collective(2), **options)).to_json()
    (tmp_path / "plan.json").write_text(text)

    def check(bootstrap):
        rank = bootstrap.get_rank()
        communicator = mscclpp.Communicator(bootstrap)
        executor = mscclpp.Executor(
            communicator, device_type=mscclpp.DeviceType.CPU, plan_code=mscclpp.PlanCode.Interpreted
        )
        plan = mscclpp.ExecutionPlan(tmp_path / "plan.json", rank)
        assert (plan.name, plan.collective, plan.rank, plan.is_in_place) == ("test_allreduce", "allreduce", rank, False)
        inputs = inputs_of(2, 333, "float32")
        result = np.zeros(333, "float32")
        for packets in (mscclpp.PacketType.LL8, mscclpp.PacketType.LL16):
            result[:] = 0
            executor.execute(rank, inputs[rank].ctypes.data, result.ctypes.data, inputs[rank].nbytes, result.nbytes,
                             mscclpp.DataType.float32, plan, 0, packets)  # fmt: skip
            assert np.array_equal(result, np.sum(inputs, axis=0))
        assert not executor.is_specialised(plan)
        executor.check()
        bootstrap.barrier()
        return True

    assert all(run_threads(2, check))
    (tmp_path / "plan.json").write_text(text.replace('"repkt"', '"nop"'))
    with pytest.raises(mscclpp.InvalidUsage, match="rank|plan"):
        mscclpp.ExecutionPlan(tmp_path / "plan.json", 0)
    with pytest.raises(mscclpp.InvalidUsage, match="cannot be read"):
        mscclpp.ExecutionPlan(tmp_path / "none.json", 0)


def copy_program(spec):
    with CollectiveProgram.from_spec(spec) as program:
        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[:], rank.get_input_buffer()[:], tb=0)
    return program


def test_in_a_collection():
    spec = make_spec(AllReduce(1), tags={"own": 1}, max_message_size=400)
    algorithm = mscclpp.compile(copy_program, spec, 0)
    assert (algorithm.name, algorithm.message_range, algorithm.tags) == ("test_allreduce", (0, 400), {"own": 1})
    algorithms = mscclpp.AlgorithmCollection()
    algorithms.register_algorithm("allreduce", algorithm.name, algorithm)
    algorithms.set_selectors(
        lambda known, call: next((a for a in known["allreduce"].values() if a.tags.get("own") == 1), None)
    )
    request = mscclpp.CollectiveRequest()
    request.collective = "allreduce"
    chosen = algorithms.select_algorithm(request)
    with single_rank() as comm:
        executor = mscclpp.Executor(comm.communicator, device_type=mscclpp.DeviceType.CPU)
        data, result = np.arange(100, dtype="float32"), np.zeros(100, "float32")
        assert execute(chosen, comm.communicator, executor, data, result) == mscclpp.CommResult.CommSuccess
        assert np.array_equal(data, result)
        chosen.set_message_size_range(0, 40)
        assert execute(chosen, comm.communicator, executor, data, result) == mscclpp.CommResult.CommInvalidArgument


def test_wrong_uses():
    algorithm = mscclpp.compile(copy_program, make_spec(AllReduce(1)), 0, device_type=mscclpp.DeviceType.CPU)
    data, result = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    with pytest.raises(mscclpp.InvalidUsage, match="rank 1|of which 1"):
        mscclpp.compile(copy_program, make_spec(AllReduce(1)), 1)
    with single_rank() as comm:
        executor = mscclpp.Executor(comm.communicator, device_type=mscclpp.DeviceType.CPU)
        assert execute(algorithm, comm.communicator, executor, data, data) == mscclpp.CommResult.CommInvalidArgument
        with pytest.raises(TypeError):
            execute(algorithm, comm.communicator, object(), data, result)
        # Without an executor the algorithm makes one.
        assert execute(algorithm, comm.communicator, None, data, result) == mscclpp.CommResult.CommSuccess
        algorithm.reset()


def stuck_program(spec):
    """Right, but rank 1 does not take part in the call."""
    with CollectiveProgram.from_spec(spec) as program:
        for r in range(2):
            channel = MemoryChannel(1 - r, r)
            channel.signal(tb=0)
            channel.wait(tb=0)
            for part in range(2):
                channel.reduce(Rank(r).get_input_buffer()[part], [Rank(1 - r).get_input_buffer()[part]], tb=0,
                               local_dst_chunk=Rank(r).get_output_buffer()[part])  # fmt: skip
            channel.signal(tb=0)
            channel.wait(tb=0)
    return program


def check_missing_rank(bootstrap):
    rank = bootstrap.get_rank()
    communicator = mscclpp.Communicator(bootstrap)
    communicator.set_wait_timeout(1)
    executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
    algorithm = mscclpp.compile(stuck_program, make_spec(AllReduce(2)), rank)
    data, result = np.ones(10, "float32"), np.zeros(10, "float32")
    assert execute(algorithm, communicator, executor, data, result) == mscclpp.CommResult.CommSuccess
    failed = None
    if rank == 0:
        failed = execute(algorithm, communicator, executor, data, result)
    bootstrap.barrier()
    return failed


def test_a_missing_rank_is_a_timeout():
    assert run_threads(2, check_missing_rank)[0] == mscclpp.CommResult.CommRemoteError


def test_the_example():
    assert finish(run_python([EXAMPLE])) == "3 ranks: right\n"
