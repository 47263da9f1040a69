"""Training on the backend mscclpp, on CPU ranks: losses beside those of gloo."""

import copy
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", reason="built without -Dtorch=enabled", exc_type=ImportError)

import c10d_ranks  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 5


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))


def batch(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)


def train(module, rank):
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    data, target = batch(rank)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(module(data), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train_ddp(rank, ranks):
    # Buckets of one or two layers, so that several are in flight.
    return train(nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.01), rank)


def sharded_model(ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (ranks,))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    return sharded


def train_fsdp(rank, ranks):
    from torch.distributed.fsdp import FSDPModule

    sharded = sharded_model(ranks)
    if dist.get_backend() == "mscclpp":
        for module in sharded.modules():
            if isinstance(module, FSDPModule):
                module.set_allocate_memory_from_process_group_for_comm(True)
    return train(sharded, rank)


def train_fsdp_registered(rank, ranks):
    import mscclpp.torch.fsdp

    sharded = sharded_model(ranks)
    if dist.get_backend() != "mscclpp":
        return train(sharded, rank)
    allocated = []

    class CountingGroup:
        """The default group, whose allocations are counted."""

        def _get_backend(self, device):
            backend = dist.group.WORLD._get_backend(device)

            class Counting:
                name = backend.name

                @staticmethod
                def allocate_tensor(size, **options):
                    allocated.append(size)
                    return backend.allocate_tensor(size, **options)

            return Counting

    mscclpp.torch.fsdp.use(sharded, CountingGroup())
    losses = train(sharded, rank)
    # The outputs of layers of one size take turns; in the first step one is in use while the next one is needed.
    assert 3 <= len(allocated) <= 6, allocated
    before = len(allocated)
    train(sharded, rank)
    assert len(allocated) == before
    return losses


def train_tensor_parallel(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (ranks,))
    parallel = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(parallel, 0)  # all ranks have the same data


# The sum of two gradients does not depend on the order; of more, on the algorithm. AdamW divides by their size.
BOUND = 1e-4


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("train_it", [train_ddp, train_fsdp, train_fsdp_registered, train_tensor_parallel])
def test_losses(train_it, ranks):
    ours = c10d_ranks.run(ranks, train_it, ranks)
    gloo = c10d_ranks.run(ranks, train_it, ranks, backend="gloo")
    if ranks == 2:
        assert ours == gloo
    else:
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(gloo), rtol=BOUND, atol=0)
    assert all(of_rank[-1] < of_rank[0] for of_rank in ours)


def redistribute(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.arange(ranks * 2 * 3 * ranks, dtype=torch.float32).reshape(ranks * 2, 3 * ranks)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.to_local(), whole.chunk(ranks, 1)[rank])
    assert torch.equal(columns.full_tensor(), whole)
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole)
    summed = (rows.redistribute(mesh, [Shard(1)]) @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)]))
    assert summed.placements == (Partial(),) or summed.placements == [Partial()]
    torch.testing.assert_close(summed.redistribute(mesh, [Shard(0)]).full_tensor(), whole @ whole.t())
    torch.testing.assert_close(summed.redistribute(mesh, [Replicate()]).to_local(), whole @ whole.t())
    # A mesh of two dimensions has groups of its own.
    if ranks == 4:
        square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        both = distribute_tensor(whole, square, [Shard(0), Shard(1)])
        assert torch.equal(both.full_tensor(), whole)


@pytest.mark.parametrize("ranks", [2, 4])
def test_redistribute(ranks):
    c10d_ranks.run(ranks, redistribute, ranks)


def run_compiled(rank, ranks, backend):
    from torch.distributed import _functional_collectives as functional

    group = dist.distributed_c10d._get_default_group()

    def step(x):
        total = functional.all_reduce(x * 2, "sum", group)
        whole = functional.all_gather_tensor(total + 1, 0, group)
        return functional.reduce_scatter_tensor(whole, "sum", 0, group) * 3

    x = torch.full((4,), float(rank))
    wanted = step(x)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(x), wanted)


def test_compile():
    c10d_ranks.run(2, run_compiled, 2, "aot_eager")


def use_wrongly(rank, ranks):
    import mscclpp.torch.fsdp

    with pytest.raises(mscclpp.InvalidUsage, match="has no FSDPModule"):
        mscclpp.torch.fsdp.use(model())
    sharded = sharded_model(ranks)
    mscclpp.torch.fsdp.use(sharded)
    with pytest.raises(mscclpp.InvalidUsage, match="backend gloo"):
        train(sharded, rank)


def test_fsdp_on_other_backend():
    c10d_ranks.run(2, use_wrongly, 2, backend="gloo")
