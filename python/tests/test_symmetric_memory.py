"""Symmetric memory of torch.distributed._symmetric_memory on CPU ranks, which are processes."""

import json
import os
import signal
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", reason="built without -Dtorch=enabled", exc_type=ImportError)

import c10d_ranks  # noqa: E402
import mscclpp  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.distributed import _symmetric_memory as symm_mem  # noqa: E402


def load():
    import mscclpp.torch.symmetric_memory  # noqa: F401

    assert symm_mem.get_backend("cpu") == "MSCCLPP"
    return dist.group.WORLD.group_name


def allocate(count, group=None):
    """A tensor, and what this rank sees of those of all ranks."""
    group = group or load()
    tensor = symm_mem.empty(count, dtype=torch.float32, device="cpu")
    return tensor, symm_mem.rendezvous(tensor, group)


def buffers(rank, ranks):
    group = load()
    for count in (0, 1, 1000, 1 << 18):
        tensor, memory = allocate(count, group)
        assert (memory.rank, memory.world_size) == (rank, ranks)
        assert memory.device == tensor.device and memory.buffer_size == tensor.nbytes
        assert memory.offset == 0 and not memory.multicast_ptr
        assert not tensor.any()
        memory.barrier()
        tensor.fill_(rank + 1)
        memory.barrier(channel=1)
        for peer in range(ranks):
            written = torch.full((count,), peer + 1.0)
            assert torch.equal(memory.get_buffer(peer, (count,), torch.float32), written)
            assert torch.equal(memory.get_remote_tensor(peer, (count,), torch.float32), written)
        memory.barrier()
        # Every rank writes one element of each other one.
        for peer in range(ranks if count >= ranks else 0):
            memory.get_buffer(peer, (1,), torch.float32, rank).fill_(100 * rank + peer)
        memory.barrier(2)
        if count >= ranks:
            wanted = torch.full((count,), rank + 1.0)
            wanted[:ranks] = torch.arange(ranks) * 100 + rank
            assert torch.equal(tensor, wanted)
        dist.barrier()
        # Signal pads are as they were, and are seen by all ranks.
        assert not memory.get_signal_pad(rank).any()
        dist.barrier()
        memory.get_signal_pad(ranks - 1, (ranks,), torch.int32, 64)[rank] = rank + 5
        memory.barrier()
        assert memory.get_signal_pad(ranks - 1, (ranks,), torch.int32, 64).tolist() == [r + 5 for r in range(ranks)]
        # Another call for the same tensor is none of all ranks.
        if rank == 0:
            assert symm_mem.rendezvous(tensor, group).buffer_ptrs == memory.buffer_ptrs
        assert len({*memory.buffer_ptrs, *memory.signal_pad_ptrs}) == 2 * ranks
        dist.barrier()


def signals(rank, ranks):
    _, memory = allocate(64)
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    inbox = memory.get_buffer(right, (64,), torch.float32)
    own = memory.get_buffer(rank, (64,), torch.float32)
    for step in range(200):
        if step > 0:  # the right neighbour has read
            memory.wait_signal(right, channel=1)
        inbox.fill_(step * ranks + rank)
        memory.put_signal(right)
        memory.wait_signal(left)
        assert torch.equal(own, torch.full((64,), float(step * ranks + left)))
        memory.put_signal(left, channel=1)
    memory.wait_signal(right, channel=1)
    dist.barrier()
    assert not memory.get_signal_pad(rank).any()
    dist.barrier()
    # Channels are independent, up to the last one.
    last = symm_mem.get_signal_pad_size() // 4 // ranks - 1
    for channel in (last, 0, 3):
        memory.put_signal(right, channel)
    for channel in (3, last, 0):
        memory.wait_signal(left, channel)
    for call in (lambda: memory.barrier(last + 1), lambda: memory.barrier(-1)):
        with pytest.raises(mscclpp.InvalidUsage, match="no channel"):
            call()
    for call in (lambda: memory.put_signal(ranks), lambda: memory.wait_signal(-1)):
        with pytest.raises(mscclpp.InvalidUsage, match="no rank"):
            call()


def collectives(rank, ranks):
    """Results of the group's collectives, in symmetric memory."""
    tensor, memory = allocate(ranks * 4096)
    for step in range(3):
        tensor.copy_(torch.arange(ranks * 4096) % 7 + rank + step)
        dist.all_reduce(tensor)
        total = (torch.arange(ranks * 4096) % 7 + step) * ranks + ranks * (ranks - 1) // 2
        assert torch.equal(tensor, total.float())
        dist.all_gather_into_tensor(tensor, torch.full((4096,), float(rank + step)))
        assert torch.equal(tensor.view(ranks, -1)[:, 5], torch.arange(ranks) + float(step))
    memory.barrier()


def record_algorithms(comm, store):
    """Long calls whose results are in symmetric memory, after the same calls elsewhere."""
    import mscclpp.torch.symmetric_memory  # noqa: F401

    rank, ranks = comm.my_rank, comm.nranks
    symm_mem.set_backend("MSCCLPP")
    assert symm_mem.get_backend("cuda") == "MSCCLPP"
    dist.init_process_group("mscclpp", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    elsewhere = torch.zeros(ranks << 20)
    tensor, _ = allocate(ranks << 20)
    part = torch.full((1 << 20,), float(rank))
    for output in (elsewhere, tensor):
        dist.all_gather_into_tensor(output, part)
        assert torch.equal(output, torch.arange(ranks).repeat_interleave(1 << 20).float())
    dist.barrier()
    dist.destroy_process_group()


def test_results_are_stored_without_a_copy(tmp_path, monkeypatch):
    table = {"collective": "all_gather", "ranks": 2, "device": "", "choices": [{"algorithm": "direct"}]}
    (tmp_path / "tuning.json").write_text(json.dumps({"format": "mscclpp tuning 1", "tables": [table]}))
    monkeypatch.setenv("MSCCLPP_TUNING_FILE", str(tmp_path / "tuning.json"))
    monkeypatch.setenv("MSCCLPP_NPKIT_DUMP_DIR", str(tmp_path))
    mscclpp.run(2, record_algorithms, str(tmp_path / "store"), timeout=300)
    events = json.loads((tmp_path / "trace_rank_0.json").read_text())["traceEvents"]
    calls = [event["name"] for event in events if event.get("ph") == "B" and "all_gather" in event.get("name", "")]
    assert len(calls) == 2 and "direct" in calls[1] and "direct" not in calls[0], calls


def subgroups(rank, ranks):
    load()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, ranks, 2)]
    group = pairs[rank // 2]
    tensor, memory = allocate(10, group.group_name)
    assert (memory.rank, memory.world_size) == (rank % 2, 2)
    tensor.fill_(rank)
    memory.barrier()
    assert memory.get_buffer(1 - rank % 2, (10,), torch.float32)[3] == rank ^ 1
    # The same memory in a second group.
    whole = symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)
    assert [whole.get_buffer(r, (10,), torch.float32)[0].item() for r in range(ranks)] == list(range(ranks))
    whole.barrier()


def failures(rank, ranks):
    group = load()
    with pytest.raises(mscclpp.InvalidUsage, match="not in symmetric memory"):
        symm_mem.rendezvous(torch.zeros(4), group)
    tensor, memory = allocate(4, group)
    begin = time.monotonic()
    if rank == 0:
        with pytest.raises(mscclpp.Timeout, match="signal of rank 1"):
            memory.wait_signal(1, timeout_ms=300)
        assert 0.2 < time.monotonic() - begin < 30
    dist.barrier()


def differing_sizes(rank, ranks):
    load()
    tensor = symm_mem.empty(4 + 1000 * rank, dtype=torch.float32, device="cpu")
    with pytest.raises(mscclpp.Error, match="size|bytes"):
        symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)


def after_the_group(rank, ranks):
    tensor, memory = allocate(4)
    tensor.fill_(rank)
    memory.barrier()
    dist.barrier()
    dist.destroy_process_group()
    with pytest.raises(mscclpp.Aborted):
        memory.barrier()
    assert memory.get_buffer(1 - rank, (4,), torch.float32)[0] == 1 - rank  # still mapped
    del tensor
    assert memory.get_buffer(rank, (4,), torch.float32)[0] == rank


def everything(rank, ranks):
    for check in (buffers, signals, collectives, subgroups):
        check(rank, ranks)


@pytest.mark.parametrize("ranks, backend", [(2, "mscclpp"), (4, "mscclpp"), (2, "gloo")])
def test_everything(ranks, backend):
    c10d_ranks.run(ranks, everything, ranks, backend=backend)


@pytest.mark.parametrize("check", [failures, differing_sizes, after_the_group])
def test_failures(check):
    c10d_ranks.run(2, check, 2)


def wait_for_killed(rank, ranks):
    _, memory = allocate(4)
    memory.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with c10d_ranks.seconds_at_most(10), pytest.raises(mscclpp.RemoteError, match="rank 1"):
        memory.barrier()


def test_killed_rank():
    c10d_ranks.run(2, wait_for_killed, 2, expect_exit=[1])
