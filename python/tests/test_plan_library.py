"""The library of plans from Python, what a model says of their times, and their pictures."""

import re
from xml.etree import ElementTree

import mscclpp
import pytest
from rank_threads import run_threads

np = pytest.importorskip("numpy")
plans = mscclpp.plans

# Only links between ranks take time: 1 us, and 1 GB/s.
LINKS = {
    **{key: {"us": 0, "GBps": 1e20} for key in ("local", "rank")},
    "memory": {"us": 1, "GBps": 1},
    "port": {"us": 3, "GBps": 1},
    "operation_us": 0,
}


def test_every_plan_can_be_made():
    listed = plans.library()
    assert len({each.name for each in listed}) == len(listed) > 20
    made = set()
    for each in listed:
        assert each.description
        assert each.collective.name == "custom" or each.collective.name in each.name.replace("_", "")
        for ranks, options in (
            (8, {}),
            (8, {"in_place": True}),
            (8, {"ranks_per_node": 4, "instances": 2}),
            (6, {"protocol": "LL"}),
        ):
            where = {key: value for key, value in options.items() if key in ("ranks_per_node", "in_place")}
            reason = each.refuses(ranks, **where)
            if reason:
                with pytest.raises(mscclpp.InvalidUsage, match=re.escape(reason)):
                    plans.make(each.name, ranks, **options)
                continue
            plan = plans.make(each.name, ranks, **options)
            assert plan.ranks == ranks and plan.in_place == options.get("in_place", False)
            again = mscclpp.Plan.from_text(plan.to_text()).verified()
            assert again.to_text() == plan.to_text()
            made.add(each.name)
    assert made == {each.name for each in listed}


def test_arguments():
    assert plans.make("all_reduce_ring", 4, instances=3).blocks(0) == 3 * plans.make("all_reduce_ring", 4).blocks(0)
    for protocol in ("LL", "LL128"):
        assert ".packets" in plans.make("all_reduce_ring", 4, protocol=protocol).to_text()
    for sentence, arguments, options in (
        ("mscclpp.plans.library() name all", ("all_reduce", 4), {}),
        ("at least two ranks, not 1", ("all_reduce_ring", 1), {}),
        ("has to be a power of two", ("all_reduce_halving_doubling", 6), {}),
        ("all_reduce_ring: instances is 0; it is 1 to 128", ("all_reduce_ring", 4), {"instances": 0}),
        ("at most 4096 ranks, not 10000", ("all_reduce_ring", 10000), {}),
        ("-1 ranks per node", ("all_reduce_ring", 4), {"ranks_per_node": -1}),
        ("5 ranks per node: there are 4", ("all_reduce_ring", 4), {"ranks_per_node": 5}),
        ('protocol is "ll"; it is one of Simple, LL', ("all_reduce_ring", 4), {"protocol": "ll"}),
    ):
        with pytest.raises(mscclpp.InvalidUsage) as caught:
            plans.make(*arguments, **options)
        assert sentence in str(caught.value), (sentence, caught.value)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_plan_of_the_library_is_executed(ranks):
    plan = plans.make("all_reduce_ring", ranks, instances=2)

    def body(bootstrap):
        communicator = mscclpp.Communicator(bootstrap)
        rank = bootstrap.get_rank()
        executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
        algorithm = mscclpp.make_algorithm(plan, rank, device_type=mscclpp.DeviceType.CPU)
        inputs = [np.arange(1001, dtype=np.float32) * (each + 1) for each in range(ranks)]
        result = np.zeros(1001, np.float32)
        code = algorithm.execute(communicator, inputs[rank].ctypes.data, result.ctypes.data, result.nbytes,
                                 result.nbytes, mscclpp.DataType.float32, executor=executor)  # fmt: skip
        bootstrap.barrier()
        executor.reset()
        return code == mscclpp.CommResult.CommSuccess and np.array_equal(result, sum(inputs))

    assert run_threads(ranks, body) == [True] * ranks


def results_of(plan, inputs):
    """What each rank has after an all-reduce by the plan."""

    def body(bootstrap):
        rank = bootstrap.get_rank()
        communicator = mscclpp.Communicator(bootstrap)
        executor = mscclpp.Executor(communicator, device_type=mscclpp.DeviceType.CPU)
        result = np.zeros_like(inputs[rank])
        executor.execute(rank, inputs[rank].ctypes.data, result.ctypes.data, result.nbytes, result.nbytes,
                         mscclpp.utils.torch_dtype_to_mscclpp_dtype(result.dtype),
                         mscclpp.ExecutionPlan(plan, rank))  # fmt: skip
        assert executor.memory().contexts == 1 and executor.memory().scratch_bytes > 0
        bootstrap.barrier()
        executor.reset()
        assert executor.memory().contexts == executor.memory().buffers == executor.memory().staging_bytes == 0
        return result.tobytes()

    return run_threads(len(inputs), body)


@pytest.mark.parametrize("name", ["all_reduce_one_shot", "all_reduce_two_shot", "all_reduce_packets"])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_files_keep_the_order_of_sums(name, protocol, dtype):
    """All ranks have the same bits, and those of the plan that was written."""
    plan = plans.make(name, 4, protocol=protocol)
    inputs = [np.random.default_rng(rank).normal(size=999).astype(dtype) for rank in range(4)]
    expected = results_of(plan, inputs)
    assert len(set(expected)) == 1
    for form in (mscclpp.Plan.from_json(plan.to_json()), mscclpp.Plan.from_text(plan.to_text())):
        assert results_of(form.verified(), inputs) == expected


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_predicted_times(ranks):
    """A ring takes 2 (n - 1) hops of a part each."""
    plan = plans.make("all_reduce_ring", ranks, in_place=True)
    hops, part = 2 * (ranks - 1), 4096

    def seconds(nbytes, **links):
        return plan.simulate(nbytes, {**LINKS, **links}).seconds

    nbytes = part * ranks
    assert seconds(nbytes) == pytest.approx(hops * (1e-6 + part * 1e-9))
    assert seconds(2 * nbytes) == pytest.approx(hops * (1e-6 + 2 * part * 1e-9))
    assert seconds(nbytes, memory={"us": 5, "GBps": 2}) == pytest.approx(hops * (5e-6 + part * 0.5e-9))
    slow_pair = [{"from": 0, "to": 1, "us": 1, "GBps": 0.5}]
    assert seconds(nbytes) < seconds(nbytes, pairs=slow_pair) <= 2 * seconds(nbytes)
    assert 0 < plan.simulate(0).seconds < plan.simulate(nbytes).seconds < seconds(nbytes)


def test_simulated_operations():
    simulated = plans.make("all_reduce_two_shot", 4).simulate(1 << 16)
    operations = simulated.operations
    assert max(each.end for each in operations) == simulated.seconds
    assert {each.rank for each in operations} == set(range(4))
    caused = [each for each in operations if each.cause >= 0]
    for each in caused:
        assert operations[each.cause].begin <= each.end and each.begin <= each.end
    assert any(operations[each.cause].rank != each.rank for each in caused)


def test_topologies_that_are_none():
    plan = plans.make("all_gather_ring", 2)
    for topology, sentence in (
        ({"links": {"us": 1}}, 'key "links" is unknown'),
        ({"memory": {"us": "1"}}, '"us": expected a number'),
        ({"memory": {"GBps": 0}}, "expected a positive number"),
        ({"memory": 5}, "expected an object with us and GBps"),
        ({"operation_us": [1]}, "topology:"),
        ({"operation_us": -1}, '"operation_us" is -1; it is not negative'),
        ({"memory": {"us": -1}}, '"us" is -1; it is not negative'),
        ({"memory": {"us": float("nan")}}, "topology: Out of range float values"),
        ({"memory": {1, 2}}, "topology: Object of type set is not JSON serializable"),
        ({"pairs": [{"from": 0}]}, "topology:"),
    ):
        for call in (plan.simulate, plan.to_svg):
            with pytest.raises(mscclpp.InvalidUsage) as caught:
                call(1024, topology)
            assert sentence in str(caught.value), (sentence, caught.value)
    for call in (plan.simulate, plan.to_svg):
        with pytest.raises(mscclpp.InvalidUsage, match="nbytes is -1; it is not negative"):
            call(-1)


def test_pictures():
    plan = plans.make("all_reduce_ring", 2)
    picture = ElementTree.fromstring(plan.to_svg(4096, LINKS))
    boxes = [each for each in picture.iter() if each.tag.endswith("rect") and len(each)]
    assert len(boxes) == len(plan.simulate(4096, LINKS).operations)
    text = "".join(picture.itertext())
    assert "rank 1, block 0" in text and "all_reduce_ring" in text and "signal" in text
    assert f"{plan.simulate(1 << 20).seconds * 1e6:.3f}"[:4] in plan.to_svg()
