#!/usr/bin/env python3
"""PyTorch's process group "nccl" over whichever library has NCCL's place, or the backend of the Python package. Needs a
GPU for each rank with NCCL itself; otherwise ranks share GPUs if there are fewer.

  torchrun --nproc-per-node 2 tests/nccl/torch_client.py --save on_nccl.json
  LD_PRELOAD=<libdir>/mscclpp-nccl/libnccl.so.2 torchrun --nproc-per-node 2 tests/nccl/torch_client.py \\
      --require-mscclpp --compare on_nccl.json
  LD_PRELOAD=... torchrun --nproc-per-node 2 tests/nccl/torch_client.py --kill
  torchrun --nproc-per-node 2 tests/nccl/torch_client.py --backend mscclpp --compare on_nccl.json

The first run records the losses of the training steps, the second compares its own with them: with --tolerance 0 bit
for bit. --kill: rank 1 is killed, and the others have to end with an error soon.
"""

import argparse
import ctypes
import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

CASES = []


def case(function):
    """Registers a function of (rank, ranks, device) as a case, which all ranks run."""
    CASES.append(function)
    return function


def check_equal(found, wanted):
    assert torch.equal(found.cpu(), wanted.cpu()), f"found {found.flatten()[:8]}, wanted {wanted.flatten()[:8]}"


def values(rank, count, device, dtype=torch.float32):
    """Small integers, whose sums are exact in every type."""
    return ((torch.arange(count, device=device) * 3 + rank) % 4).to(dtype)


def total(ranks, count, device, dtype=torch.float32):
    return sum(values(rank, count, device, torch.float32) for rank in range(ranks)).to(dtype)


@case
def all_reduce(rank, ranks, device):
    types = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
    types += [torch.int8, torch.uint8, torch.int32, torch.int64]
    for dtype in types:
        for count in (1, 1000, 1 << 20):
            tensor = values(rank, count, device, dtype)
            dist.all_reduce(tensor)
            check_equal(tensor, total(ranks, count, device, dtype))
    for op, wanted in ((dist.ReduceOp.MAX, torch.maximum), (dist.ReduceOp.MIN, torch.minimum)):
        tensor = values(rank, 1000, device)
        dist.all_reduce(tensor, op=op)
        result = values(0, 1000, device)
        for other in range(1, ranks):
            result = wanted(result, values(other, 1000, device))
        check_equal(tensor, result)
    tensor = values(rank, 1000, device)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert torch.allclose(tensor, total(ranks, 1000, device) / ranks)
    tensor = values(rank, 1000, device)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(2.0))
    check_equal(tensor, 2 * total(ranks, 1000, device))


@case
def gather_and_scatter_tensors(rank, ranks, device):
    for count in (1, 999, 1 << 19):
        gathered = torch.empty(count * ranks, device=device)
        dist.all_gather_into_tensor(gathered, values(rank, count, device))
        check_equal(gathered, torch.cat([values(r, count, device) for r in range(ranks)]))
        part = torch.empty(count, device=device)
        dist.reduce_scatter_tensor(part, values(rank, count * ranks, device))
        check_equal(part, total(ranks, count * ranks, device)[rank * count : (rank + 1) * count])


@case
def lists_of_tensors(rank, ranks, device):
    outputs = [torch.empty(100, device=device) for _ in range(ranks)]
    dist.all_gather(outputs, values(rank, 100, device))
    for r, output in enumerate(outputs):
        check_equal(output, values(r, 100, device))
    gathered = [torch.empty(100, device=device) for _ in range(ranks)] if rank == 0 else None
    dist.gather(values(rank, 100, device), gathered, dst=0)
    part = torch.empty(100, device=device)
    dist.scatter(part, [values(r, 100, device) for r in range(ranks)] if rank == 0 else None, src=0)
    check_equal(part, values(rank, 100, device))
    dist.reduce(part, dst=0)
    if rank == 0:
        check_equal(part, total(ranks, 100, device))


@case
def all_to_all(rank, ranks, device):
    sent = torch.cat([values(rank + 10 * peer, 500, device) for peer in range(ranks)])
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    check_equal(received, torch.cat([values(peer + 10 * rank, 500, device) for peer in range(ranks)]))
    # Uneven, with empty messages: rank r has r * 7 + p * 3 elements for rank p, and none for itself.
    sizes = [0 if p == rank else rank * 7 + p * 3 for p in range(ranks)]
    origins = [0 if p == rank else p * 7 + rank * 3 for p in range(ranks)]
    sent = torch.cat([values(rank + 5 * p, size, device) for p, size in enumerate(sizes)])
    received = torch.empty(sum(origins), device=device)
    dist.all_to_all_single(received, sent, origins, sizes)
    check_equal(received, torch.cat([values(p + 5 * rank, size, device) for p, size in enumerate(origins)]))


@case
def broadcast_and_messages(rank, ranks, device):
    tensor = values(rank, 3000, device)
    dist.broadcast(tensor, src=ranks - 1)
    check_equal(tensor, values(ranks - 1, 3000, device))
    if ranks > 1 and rank == 0:
        dist.send(values(0, 5000, device), dst=1)
    elif rank == 1:
        tensor = torch.empty(5000, device=device)
        dist.recv(tensor, src=0)
        check_equal(tensor, values(0, 5000, device))
    following, preceding = (rank + 1) % ranks, (rank - 1) % ranks
    received = [torch.empty(2000, device=device) for _ in range(2)]
    operations = [dist.P2POp(dist.isend, values(rank + i, 2000, device), following) for i in range(2)]
    operations += [dist.P2POp(dist.irecv, received[i], preceding) for i in range(2)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for i in range(2):
        check_equal(received[i], values(preceding + i, 2000, device))
    dist.barrier()


@case
def objects(rank, ranks, device):
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank + 1)})
    assert [entry["rank"] for entry in gathered] == list(range(ranks))


@case
def groups(rank, ranks, device):
    made = [dist.new_group(list(range(ranks))) for _ in range(3)]
    made.append(dist.split_group(split_ranks=[list(range(ranks))]))
    for group in made:
        tensor = values(rank, 1000, device)
        dist.all_reduce(tensor, group=group)
        check_equal(tensor, total(ranks, 1000, device))
    alone = [dist.new_group([r]) for r in range(ranks)][rank]
    tensor = values(rank, 1000, device)
    dist.all_reduce(tensor, group=alone)
    check_equal(tensor, values(rank, 1000, device))
    for group in made + [alone]:
        dist.destroy_process_group(group)


@case
def coalescing(rank, ranks, device):
    tensors = [values(rank + i, 100 * (i + 1), device) for i in range(4)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        check_equal(tensor, sum(values(r + i, 100 * (i + 1), device) for r in range(ranks)))


@case
def cuda_graphs(rank, ranks, device):
    source, result = values(rank, 4096, device), torch.empty(4096, device=device)
    gathered = torch.empty(4096 * ranks, device=device)

    def step():
        result.copy_(source)
        dist.all_reduce(result)
        dist.all_gather_into_tensor(gathered, result)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for i in range(10):
        source.copy_(values(rank + i, 4096, device))
        graph.replay()
        eager = values(rank, 10, device)
        dist.all_reduce(eager)
        wanted = sum(values(r + i, 4096, device) for r in range(ranks))
        check_equal(result, wanted)
        check_equal(gathered, wanted.repeat(ranks))
        check_equal(eager, total(ranks, 10, device))


@case
def compiled_functional_collectives(rank, ranks, device):
    import torch.distributed._functional_collectives as functional

    @torch.compile
    def step(tensor):
        summed = functional.all_reduce(tensor * 2, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(summed + 1, 0, dist.group.WORLD)

    check_equal(step(values(rank, 1000, device)), (2 * total(ranks, 1000, device) + 1).repeat(ranks))


def model(device):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 512), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 16)).to(device)


def train(module, rank, device, steps=10):
    """The losses of some steps, which are the same on every rank."""
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(
            module(torch.randn(64, 256, device=device)), torch.randn(64, 16, device=device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean))
    return losses


def distributed_data_parallel(rank, device):
    return train(torch.nn.parallel.DistributedDataParallel(model(device), device_ids=[device.index]), rank, device)


def fully_sharded(rank, device):
    from torch.distributed.fsdp import fully_shard

    module = model(device)
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(module)
    return train(module, rank, device)


def run_cases(arguments, rank, ranks, device):
    failed = []
    for function in CASES:
        start = time.monotonic()
        function(rank, ranks, device)
        torch.cuda.synchronize()
        if rank == 0:
            print(f"{function.__name__}: ok, {time.monotonic() - start:.2f} s", flush=True)
    losses = {"ddp": distributed_data_parallel(rank, device), "fsdp2": fully_sharded(rank, device)}
    if rank == 0 and arguments.save:
        with open(arguments.save, "w") as file:
            json.dump(losses, file)
    if arguments.compare:
        with open(arguments.compare) as file:
            reference = json.load(file)
        for name, wanted in reference.items():
            difference = max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses[name], wanted))
            if rank == 0:
                print(f"{name}: losses differ by {difference:.3g} at most", flush=True)
            if difference > arguments.tolerance:
                failed.append(f"{name}: the losses differ by {difference:.3g}: {losses[name]} and {wanted}")
    return failed


def run_killed(rank, device):
    """Rank 1 is killed; the others end by an exception, or by the watchdog, which ends the process."""
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    except Exception as error:  # the class differs between versions of PyTorch
        print(f"rank {rank} noticed after {time.monotonic() - start:.1f} s: {error}", flush=True)
    assert time.monotonic() - start < 60, "the failure was noticed too late"


def is_mscclpp_preloaded():
    """Whether a preloaded library gives PyTorch its NCCL functions. PyTorch may load NCCL itself as well, by its path;
    the preloaded names come first."""
    try:
        text = ctypes.CDLL(None).ncclGetErrorString
    except AttributeError:
        return False
    text.restype = ctypes.c_char_p
    internal_error = 3
    return b"mscclpp" in text(internal_error)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--compare")
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative difference of losses")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--backend", choices=("nccl", "mscclpp"), default="nccl", help="of torch.distributed")
    parser.add_argument("--require-mscclpp", action="store_true", help="fail on NCCL itself")
    arguments = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if arguments.backend == "mscclpp":
        import mscclpp.torch  # noqa: F401 - registers the backend
    library = "mscclpp" if is_mscclpp_preloaded() or arguments.backend == "mscclpp" else "NCCL"
    if rank == 0:
        print(f"PyTorch {torch.__version__} on {library}, version {torch.cuda.nccl.version()}")
    if arguments.require_mscclpp:
        assert library == "mscclpp", "LD_PRELOAD names no mscclpp-nccl/libnccl.so.2, or it could not be loaded"
    timeout = datetime.timedelta(seconds=20 if arguments.kill else 120)
    dist.init_process_group(arguments.backend, device_id=device, timeout=timeout)
    if arguments.kill:
        run_killed(rank, device)
        os._exit(0)
    failed = run_cases(arguments, rank, ranks, device)
    dist.destroy_process_group()
    print("\n".join(failed) or f"rank {rank}: all cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
