"""The calls of torch.distributed on the backend mscclpp, on CPU ranks: values, types, operators and groups."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", reason="built without -Dtorch=enabled", exc_type=ImportError)

import c10d_ranks  # noqa: E402
import mscclpp  # noqa: E402
from torch import distributed as dist  # noqa: E402

RANKS = [2, 4]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def data_of(rank, dtype, shape=(7, 3)):
    """Small integers: sums and products of four ranks are exact in each type."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def all_data(ranks, dtype, shape=(7, 3)):
    return torch.stack([data_of(rank, dtype, shape) for rank in range(ranks)])


def check_all_reduce(rank, ranks):
    for dtype in INTEGERS + FLOATS:
        every = all_data(ranks, torch.float64)
        expected = {
            dist.ReduceOp.SUM: every.sum(0),
            dist.ReduceOp.PRODUCT: every.prod(0),
            dist.ReduceOp.MIN: every.amin(0),
            dist.ReduceOp.MAX: every.amax(0),
        }
        if dtype in FLOATS:
            expected[dist.ReduceOp.AVG] = every.mean(0)
        for op, wanted in expected.items():
            tensor = data_of(rank, dtype)
            assert dist.all_reduce(tensor, op=op) is None
            assert torch.equal(tensor, wanted.to(dtype)), (dtype, op)
    for op, fold in ((dist.ReduceOp.SUM, torch.any), (dist.ReduceOp.MIN, torch.all)):
        tensor = torch.tensor([rank == 0, True, False])
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor, fold(torch.tensor([[r == 0, True, False] for r in range(ranks)]), 0))
    complex_tensor = torch.full((5,), 1 + 2j)
    dist.all_reduce(complex_tensor)
    assert torch.equal(complex_tensor, torch.full((5,), ranks * (1 + 2j)))
    for size in (0, 1, 3, 100_000, 1_000_003):
        tensor = torch.full((size,), float(rank + 1))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((size,), ranks * (ranks + 1) / 2))
    channels_last = torch.full((2, 3, 4, 5), float(rank)).to(memory_format=torch.channels_last)
    dist.all_reduce(channels_last)
    assert torch.equal(channels_last, torch.full((2, 3, 4, 5), ranks * (ranks - 1) / 2))


def check_factors(rank, ranks):
    every = all_data(ranks, torch.float32)
    for factor in (0.5, torch.tensor([0.5])):
        tensor = data_of(rank, torch.float32)
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
        assert torch.equal(tensor, every.sum(0) * 0.5)
    # Ranks may have different factors.
    tensor = torch.ones(4)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(float(rank)))
    assert torch.equal(tensor, torch.full((4,), ranks * (ranks - 1) / 2))


def check_gathers(rank, ranks):
    for dtype in (*INTEGERS, *FLOATS, torch.bool, torch.complex64, torch.float8_e4m3fn):
        mine = data_of(rank, dtype)
        every = [data_of(r, dtype) for r in range(ranks)]
        outputs = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(outputs, mine)
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(outputs, every)), dtype
        whole = torch.empty((ranks * 7, 3), dtype=dtype)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole.view(torch.uint8), torch.cat(every).view(torch.uint8)), dtype
        for root in range(ranks):
            outputs = [torch.zeros_like(mine) for _ in range(ranks)] if rank == root else None
            dist.gather(mine, outputs, dst=root)
            if rank == root:
                assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(outputs, every))
    # Of different sizes, and in place.
    outputs = [torch.empty(r + 1) for r in range(ranks)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert all(torch.equal(outputs[r], torch.full((r + 1,), float(r))) for r in range(ranks))
    whole = torch.full((ranks * 2,), -1.0)
    whole[2 * rank : 2 * rank + 2] = rank
    dist.all_gather_into_tensor(whole, whole[2 * rank : 2 * rank + 2])
    assert torch.equal(whole, torch.arange(ranks).repeat_interleave(2).float())


def check_broadcasts(rank, ranks):
    for root in range(ranks):
        tensor = data_of(rank, torch.float32)
        dist.broadcast(tensor, src=root)
        assert torch.equal(tensor, data_of(root, torch.float32))
        tensor = data_of(rank, torch.float32)
        dist.reduce(tensor, dst=root)
        if rank == root:
            assert torch.equal(tensor, all_data(ranks, torch.float32).sum(0))
        inputs = [torch.full((3,), 10.0 * root + r) for r in range(ranks)] if rank == root else None
        output = torch.empty(3)
        dist.scatter(output, inputs, src=root)
        assert torch.equal(output, torch.full((3,), 10.0 * root + rank))


def check_reduce_scatters(rank, ranks):
    for op, fold in ((dist.ReduceOp.SUM, lambda t: t.sum(0)), (dist.ReduceOp.AVG, lambda t: t.mean(0))):
        mine = data_of(rank, torch.float32, (ranks * 2, 5))
        wanted = fold(all_data(ranks, torch.float32, (ranks * 2, 5)))
        output = torch.empty(2, 5)
        dist.reduce_scatter_tensor(output, mine, op=op)
        assert torch.equal(output, wanted[2 * rank : 2 * rank + 2])
        output = torch.empty(2, 5)
        dist.reduce_scatter(output, list(mine.chunk(ranks)), op=op)
        assert torch.equal(output, wanted[2 * rank : 2 * rank + 2])
    # Parts of different sizes.
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [torch.full((r + 1,), float(rank)) for r in range(ranks)])
    assert torch.equal(output, torch.full((rank + 1,), ranks * (ranks - 1) / 2))


def check_all_to_all(rank, ranks):
    outputs = [torch.empty(2, dtype=torch.int32) for _ in range(ranks)]
    dist.all_to_all(outputs, [torch.full((2,), 10 * rank + r, dtype=torch.int32) for r in range(ranks)])
    assert all(torch.equal(outputs[r], torch.full((2,), 10 * r + rank, dtype=torch.int32)) for r in range(ranks))
    # Lists of different sizes: r + 1 elements to rank r.
    outputs = [torch.empty(rank + 1) for _ in range(ranks)]
    dist.all_to_all(outputs, [torch.full((r + 1,), 10.0 * rank + r) for r in range(ranks)])
    assert all(torch.equal(outputs[r], torch.full((rank + 1,), 10.0 * r + rank)) for r in range(ranks))
    output = torch.empty(ranks, 3)
    dist.all_to_all_single(output, torch.stack([torch.full((3,), 10.0 * rank + r) for r in range(ranks)]))
    assert torch.equal(output, torch.stack([torch.full((3,), 10.0 * r + rank) for r in range(ranks)]))
    splits = [(rank + r) % 3 for r in range(ranks)]  # some are empty
    output = torch.empty(sum(splits), 2)
    dist.all_to_all_single(
        output, torch.cat([torch.full((s, 2), 10.0 * rank + r) for r, s in enumerate(splits)]), splits, splits
    )
    assert torch.equal(output, torch.cat([torch.full((s, 2), 10.0 * r + rank) for r, s in enumerate(splits)]))


def check_messages(rank, ranks):
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks
    received = torch.empty(1000)
    if rank % 2 == 0:
        dist.send(torch.full((1000,), float(rank)), following)
        assert dist.recv(received, previous) == previous
    else:
        dist.recv(received, previous)
        dist.send(torch.full((1000,), float(rank)), following)
    assert torch.equal(received, torch.full((1000,), float(previous)))
    # In whichever order, with tags, and without elements.
    works = [dist.isend(torch.tensor([rank, tag]), following, tag=tag) for tag in (5, 6)]
    works.append(dist.isend(torch.empty(0), following))
    second, first = torch.empty(2, dtype=torch.int64), torch.empty(2, dtype=torch.int64)
    works += [dist.irecv(second, previous, tag=6), dist.irecv(first, previous, tag=5)]
    works.append(dist.irecv(torch.empty(0), previous))
    for work in works:
        assert work.wait()
    assert first.tolist() == [previous, 5] and second.tolist() == [previous, 6]
    received = torch.empty(100_000)
    batch = [
        dist.P2POp(dist.irecv, received, previous),
        dist.P2POp(dist.isend, torch.full((100_000,), float(rank)), following),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(received, torch.full((100_000,), float(previous)))


def check_objects(rank, ranks):
    dist.barrier()
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(ranks)]
    box = [("from", rank), rank]
    dist.broadcast_object_list(box, src=1)
    assert box == [("from", 1), 1]
    output = [None]
    dist.scatter_object_list(output, [f"for {r}" for r in range(ranks)] if rank == 0 else None, src=0)
    assert output == [f"for {rank}"]
    gathered = [None] * ranks if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert gathered is None or gathered == list(range(ranks))
    if rank == 0:
        dist.send_object_list([1, "two"], dst=1)
    elif rank == 1:
        box = [None, None]
        dist.recv_object_list(box, src=0)
        assert box == [1, "two"]


def check_async(rank, ranks):
    tensors = [torch.full((1000,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        assert work.wait() and work.is_completed() and work.is_success()
        assert torch.equal(tensor, torch.full((1000,), ranks * (ranks - 1) / 2 + ranks * i))
    for future, tensor in zip(futures, tensors):
        assert future.wait()[0] is not None and torch.equal(future.value()[0], tensor)
    tensor = torch.ones(3)
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((3,), 2.0 * ranks))
    # The caller goes on while another rank is late.
    import time

    if rank == 1:
        time.sleep(0.5)
    begin = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    assert time.monotonic() - begin < 0.4
    assert rank == 1 or not work.is_completed()
    work.wait()


def check_coalescing(rank, ranks):
    tensors = [torch.full((10,), float(rank + i)) for i in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    total = ranks * (ranks - 1) / 2
    assert all(torch.equal(tensor, torch.full((10,), total + ranks * i)) for i, tensor in enumerate(tensors))
    outputs = [torch.empty(ranks * 2) for _ in range(2)]
    with dist._coalescing_manager():
        for output in outputs:
            dist.all_gather_into_tensor(output, torch.full((2,), float(rank)))
    assert all(torch.equal(output, torch.arange(ranks).repeat_interleave(2).float()) for output in outputs)
    with dist._coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_tensor(output[:2], torch.full((ranks * 2,), float(rank)))
    assert all(torch.equal(output[:2], torch.full((2,), total)) for output in outputs)
    # Calls of other kinds, in one group of the backend.
    first, second = torch.full((4,), float(rank)), torch.full((4,), float(rank))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(first, src=0, async_op=True)
        dist.broadcast(second, src=1)
    manager.wait()
    assert torch.equal(first, torch.zeros(4)) and torch.equal(second, torch.ones(4))


def check_groups(rank, ranks):
    everybody = dist.new_group()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, ranks, 2)]
    mine = pairs[rank // 2]
    for group, size in ((everybody, ranks), (mine, 2)):
        tensor = torch.ones(5)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full((5,), float(size)))
    dist.destroy_process_group(mine)
    # A split takes no new connections; those that are not among the ranks get nothing.
    world = dist.distributed_c10d._get_default_group()
    backend = world._get_backend(torch.device("cpu"))
    assert backend.supports_splitting
    part = world.split_group(list(range(0, ranks, 2)), group_name="even")
    assert (part is None) == (rank % 2 == 1)
    if part is not None:
        tensor = torch.full((3,), float(rank))
        part.allreduce([tensor]).wait()
        assert torch.equal(tensor, torch.full((3,), float(sum(range(0, ranks, 2)))))
        assert part.rank() == rank // 2
        part.shutdown()
    both = [world.split_group(list(range(ranks)), group_name=f"all{i}") for i in range(3)]
    works, tensors = [], [torch.ones(4) for _ in both]
    for group, tensor in zip(both, tensors):
        works.append(group.allreduce([tensor]))
    assert all(work.wait() for work in works)
    assert all(torch.equal(tensor, torch.full((4,), float(ranks))) for tensor in tensors)


def check_functional(rank, ranks):
    from torch.distributed import _functional_collectives as functional

    group = dist.distributed_c10d._get_default_group()
    total = ranks * (ranks - 1) / 2
    tensor = functional.wait_tensor(functional.all_reduce(torch.full((3,), float(rank)), "sum", group))
    assert torch.equal(tensor, torch.full((3,), total))
    gathered = functional.wait_tensor(functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group))
    assert torch.equal(gathered, torch.arange(ranks).repeat_interleave(2).float())
    scattered = functional.reduce_scatter_tensor(torch.full((2 * ranks,), float(rank)), "sum", 0, group)
    assert torch.equal(functional.wait_tensor(scattered), torch.full((2,), total))
    swapped = functional.all_to_all_single(torch.arange(ranks).float() + 10 * rank, None, None, group)
    assert torch.equal(functional.wait_tensor(swapped), torch.arange(ranks).float() * 10 + rank)
    sent = functional.wait_tensor(functional.broadcast(torch.full((2,), float(rank)), 1, group))
    assert torch.equal(sent, torch.ones(2))
    several = functional.all_reduce_coalesced([torch.full((2,), float(rank)), torch.ones(3)], "sum", group)
    assert torch.equal(several[0], torch.full((2,), total)) and torch.equal(several[1], torch.full((3,), float(ranks)))
    # As DTensor changes the sharded dimension.
    moved = torch.ops._dtensor.shard_dim_alltoall(torch.full((2, ranks), float(rank)), 0, 1, group.group_name)
    assert torch.equal(moved, torch.arange(ranks).repeat_interleave(2).float().reshape(2 * ranks, 1))


def check_registered_tensors(rank, ranks):
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))

    def allocate(size, dtype=torch.float32):
        return backend.allocate_tensor(size, dtype=dtype, device=torch.device("cpu"))

    first, second = allocate(ranks * 1000), allocate(ranks * 1000)
    assert first.shape == (ranks * 1000,) and first.data_ptr() != second.data_ptr()
    for output in (first, second, first.view(ranks, 1000)[:, :]):
        dist.all_gather_into_tensor(output.view(-1), torch.full((1000,), float(rank)))
        assert torch.equal(output.view(-1), torch.arange(ranks).repeat_interleave(1000).float())
    # Memory is used again when its tensors are gone on all ranks.
    addresses = {first.data_ptr(), second.data_ptr()}
    kept = second if rank == 1 else None
    del second, output
    third = allocate(ranks * 1000)
    assert third.data_ptr() not in addresses
    del kept, first
    assert allocate(ranks * 1000).data_ptr() in addresses
    dist.all_reduce(third)
    assert allocate(0).shape == (0,)
    with pytest.raises(mscclpp.InvalidUsage, match="rank 1 asks for"):
        allocate(100 + rank)


def check_wrong_usage(rank, ranks):
    wrong = [
        (lambda: dist.all_reduce(torch.ones(4, 4).t()[:, :2]), "not contiguous"),
        (lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.BAND), "operator is not supported"),
        (lambda: dist.all_reduce(torch.ones(4, dtype=torch.bool), op=dist.ReduceOp.AVG), "average of booleans"),
        (lambda: dist.all_gather_into_tensor(torch.ones(3 * ranks), torch.ones(2)), "elements"),
        (lambda: dist.all_to_all_single(torch.ones(2 * ranks + 1), torch.ones(2 * ranks + 1)), "do not divide"),
        (lambda: dist.all_to_all_single(torch.ones(ranks), torch.ones(ranks), [1] * ranks, [2] * ranks), "split sizes"),
        (lambda: dist.recv(torch.ones(1)), "pass src="),
        (lambda: dist.send(torch.ones(1), (rank + 1) % ranks, tag=1 << 20), "tags are 0 to"),
        (lambda: dist.all_reduce(torch.ones(2).to_sparse()), "sparse"),
    ]
    for call, sentence in wrong:
        with pytest.raises((mscclpp.InvalidUsage, RuntimeError), match=sentence) as error:
            call()
        assert isinstance(error.value, mscclpp.InvalidUsage), (sentence, error.value)
        assert error.value.code == mscclpp.ErrorCode.InvalidUsage
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group is as good as before
    assert torch.equal(tensor, torch.full((2,), float(ranks)))


CHECKS = [
    check_all_reduce, check_factors, check_gathers, check_broadcasts, check_reduce_scatters, check_all_to_all,
    check_messages, check_objects, check_async, check_coalescing, check_groups, check_functional,
    check_registered_tensors, check_wrong_usage,
]  # fmt: skip


def check_everything(rank, ranks):
    for check in CHECKS:
        check(rank, ranks)
    return dist.get_backend()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_calls(check, ranks):
    c10d_ranks.run(ranks, check, ranks)


@pytest.mark.parametrize("backend", ["cpu:mscclpp", "cpu:mscclpp,cuda:mscclpp"])
def test_backend_names(backend):
    c10d_ranks.run(2, check_everything, 2, backend=backend)
