"""The interfaces of the package on tensors of a device, checked by each rank: what has to be run on GPUs.

  torchrun --nproc-per-node 2 python/tests/client.py                   # on GPUs, which ranks share if there are fewer
  python3 python/tests/client.py --ranks 2 --device cpu                # without: test_client.py does

Beside it, on GPUs: tests/nccl/torch_client.py --backend mscclpp, examples/python/*.py, the programs in
examples/python/torch-integration, and bench/python/decode.py.
"""

import argparse
import contextlib
import itertools
import os
import tempfile

import mscclpp
import torch
from gemm_reference import operand, product, require_close
from torch import distributed as dist

CASES = []


def case(function):
    """Registers a function of (comm, device) as a case, which all ranks run."""
    CASES.append(function)
    return function


def values(rank, count, device, dtype=torch.float32):
    """Small integers, whose sums are exact in every type."""
    return ((torch.arange(count, device=device) * 3 + rank) % 4).to(dtype)


def total(ranks, count, device, dtype=torch.float32):
    return sum(values(rank, count, device) for rank in range(ranks)).to(dtype)


def check_equal(found, wanted):
    assert found.dtype == wanted.dtype and torch.equal(found.cpu(), wanted.cpu()), (
        f"found {found.flatten()[:8]}, wanted {wanted.flatten()[:8]}"
    )


@contextlib.contextmanager
def other_stream(device):
    """Another stream than the default one is current; the host waits for it at the end."""
    if device.type == "cpu":
        yield
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


@case
def collectives(comm, device):
    rank, ranks = comm.my_rank, comm.nranks
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
        for count in (1, 1001, 1 << 17):
            with other_stream(device):
                tensor = values(rank, count, device, dtype)
                check_equal(comm.all_reduce(tensor), total(ranks, count, device, dtype))
                gathered = torch.cat([values(r, count, device, dtype) for r in range(ranks)])
                check_equal(comm.all_gather(tensor), gathered)
                part = comm.reduce_scatter(values(rank, count * ranks, device, dtype))
                check_equal(part, total(ranks, count * ranks, device, dtype)[rank * count : (rank + 1) * count])
                check_equal(comm.broadcast(tensor, root=ranks - 1), values(ranks - 1, count, device, dtype))
                to_all = torch.full((ranks, count), rank, device=device, dtype=dtype)
                wanted = torch.arange(ranks, device=device, dtype=dtype).repeat_interleave(count).view(ranks, count)
                check_equal(comm.all_to_all(to_all), wanted)
                check_equal(comm.all_reduce(tensor, out=tensor), total(ranks, count, device, dtype))


@case
def registered_memory(comm, device):
    rank, ranks, count = comm.my_rank, comm.nranks, 1 << 18
    mapped = comm.empty(count, torch.float32)
    assert mapped.device.type == device.type and not mapped.any()
    for algorithm in (None, "copy_engine"):
        comm.all_reduce(values(rank, count, device), out=mapped, algorithm=algorithm)
        check_equal(mapped, total(ranks, count, device))
    assert comm.empty(0, torch.float32).numel() == 0
    comm.free(mapped)


@case
def messages(comm, device):
    rank, ranks = comm.my_rank, comm.nranks
    with comm.group():
        received = [torch.empty(1000, device=device) for _ in range(ranks)]
        for peer in range(ranks):
            if peer != rank:
                comm.send(values(rank, 1000, device), peer)
                comm.recv(received[peer], peer)
    for peer in range(ranks):
        if peer != rank:
            check_equal(received[peer], values(peer, 1000, device))


@case
def operators(comm, device):
    import mscclpp.torch

    group = mscclpp.torch.register(comm)
    rank, ranks, rows, hidden = comm.my_rank, comm.nranks, 5, 1024
    ops = torch.ops.mscclpp
    partial = values(rank, rows * hidden, device).view(rows, hidden)
    residual, weight = torch.ones_like(partial), torch.full((hidden,), 2.0, device=device)
    reduced = total(ranks, rows * hidden, device).view(rows, hidden)
    check_equal(ops.all_reduce(partial, group), reduced)
    normalised, new_residual = ops.all_reduce_rms_norm(partial, residual, weight, group)
    check_equal(new_residual, reduced + 1)
    wanted = torch.nn.functional.rms_norm(reduced + 1, (hidden,), weight, 1e-6)
    torch.testing.assert_close(normalised, wanted, rtol=1e-5, atol=1e-5)
    half, half_residual, half_weight = partial.half(), residual.half(), weight.half()
    normalised, _ = ops.all_reduce_rms_norm(half, half_residual, half_weight, group)
    for quantisation, error in (("fp8_per_row", 1 / 16), ("fp8_per_group", 1 / 16), ("int8_per_row", 1 / 100)):
        found = ops.all_reduce_rms_norm_quantised(half, half_residual, half_weight, group, quantisation)
        scales = found[1].repeat_interleave(hidden // found[1].shape[-1], -1)
        largest = normalised.float().abs().amax()
        assert ((found[0].float() * scales - normalised.float()).abs() <= error * largest).all(), quantisation
    summed = ops.all_reduce_fp8(half, group)
    assert (summed - reduced).abs().amax() <= 4 * ranks / 14
    check_equal(ops.all_gather(summed[None], group), summed.expand(ranks, rows, hidden))

    def layer(x):
        return ops.all_reduce(x * 2, group) + 1

    check_equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(partial), 2 * reduced + 1)
    if device.type == "cuda":
        check_graph(ops, group, partial, residual, weight)


def check_graph(ops, group, partial, residual, weight):
    """Replays of a CUDA graph compute what the same calls compute eagerly, from new input."""
    inputs = torch.empty_like(partial)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hidden, updated = ops.all_reduce_rms_norm(inputs, residual, weight, group)
        ops.all_reduce_(hidden, group)
    for step in range(3):
        inputs.copy_(partial * step)
        graph.replay()
        wanted, wanted_residual = ops.all_reduce_rms_norm(partial * step, residual, weight, group)
        check_equal(updated, wanted_residual)
        check_equal(hidden, ops.all_reduce(wanted, group))


@case
def fused_gemms(comm, device):
    """Products with communication inside, of few and of many rows, eager and in a graph."""
    import mscclpp.torch

    group = mscclpp.torch.register(comm)
    rank, ranks, width, depth = comm.my_rank, comm.nranks, 136, 264
    for rows in (2 * ranks, 300 * ranks):
        inputs = [operand(rows, depth, other) for other in range(ranks)]
        weights = [operand(width, depth, other + 100) for other in range(ranks)]
        input, weight = inputs[rank].to(device), weights[rank].to(device)
        slices = [slice(rows // ranks * other, rows // ranks * (other + 1)) for other in range(ranks)]
        products = [product(*pair) for pair in zip(inputs, weights)]
        result = comm.gemm_all_reduce(input, weight)
        require_close(result, products)
        part = torch.ops.mscclpp.gemm_reduce_scatter(input, weight, group)
        require_close(part, [(exact[slices[rank]], bound[slices[rank]]) for exact, bound in products])
        whole = torch.ops.mscclpp.all_gather_gemm(input[slices[rank]], weight, group)
        gathered = torch.cat([each[slices[other]] for other, each in enumerate(inputs)])
        require_close(whole, [product(gathered, weights[rank])])
        if device.type == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                again = torch.ops.mscclpp.gemm_all_reduce(input, weight, group)
            for _ in range(3):
                again.zero_()
                graph.replay()
                check_equal(again, result)
    if device.type == "cuda":
        torch.cuda.synchronize()
    comm.fused_gemms(mscclpp.DeviceType.GPU if device.type == "cuda" else mscclpp.DeviceType.CPU).check()


@case
def experts(comm, device):
    """Dispatch and combine as operators, with experts that return what they get."""
    from mscclpp import moe

    rank, ranks, hidden, tokens = comm.my_rank, comm.nranks, 256, 6
    most = {"max_tokens": tokens, "max_low_latency_tokens": tokens}
    buffer = moe.Buffer(comm, experts=2 * ranks, hidden=hidden, topk=2, **most, device=device.type)
    x = values(rank, tokens * hidden, device, torch.bfloat16).view(tokens, hidden)
    first = torch.arange(tokens, device=device) % (2 * ranks)
    choices = torch.stack([first, (first + 1) % (2 * ranks)], 1)
    weights = torch.tensor([0.5, 0.25], device=device).expand(tokens, 2).contiguous()

    def layer():
        rows, handle = buffer.dispatch(x, choices, weights)
        few, few_handle, _ = buffer.low_latency_dispatch(x, choices, weights)
        return buffer.combine(rows.rows, handle), buffer.low_latency_combine(few.rows, few_handle)[0]

    for output in layer():
        check_equal(output, x * 0.75)
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = layer()
        for step in range(3):
            x.fill_(step + rank)
            graph.replay()
            for output in outputs:
                check_equal(output, x * 0.75)
        torch.cuda.synchronize()
    buffer.check()


@case
def library_plan(comm, device):
    """Plans of the library, executed: data and signals, and packets; as code and interpreted."""
    rank, ranks, count = comm.my_rank, comm.nranks, 1001
    if ranks == 1:
        return  # a plan is for two ranks at least
    gpu = device.type == "cuda"
    device_type = mscclpp.DeviceType.GPU if gpu else mscclpp.DeviceType.CPU
    stream = torch.cuda.current_stream().cuda_stream if gpu else 0
    codes = (mscclpp.PlanCode.Specialised, mscclpp.PlanCode.Interpreted)
    for name, plan_code in itertools.product(("all_reduce_ring", "all_reduce_packets"), codes):
        algorithm = mscclpp.make_algorithm(mscclpp.plans.make(name, ranks), rank, device_type=device_type)
        executor = mscclpp.Executor(comm.communicator, device_type=device_type, plan_code=plan_code)
        source, target = values(rank, count, device), torch.zeros(count, device=device)
        code = algorithm.execute(comm.communicator, source.data_ptr(), target.data_ptr(), source.nbytes, target.nbytes,
                                 mscclpp.DataType.float32, stream=stream, executor=executor)  # fmt: skip
        assert code == mscclpp.CommResult.CommSuccess
        check_equal(target, total(ranks, count, device))  # waits for the stream
        comm.barrier()
        executor.reset()


@case
def memory_pool(comm, device):
    if device.type == "cpu":
        return
    import mscclpp.torch

    pool = mscclpp.torch.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.zeros(1 << 20, device=device)
    comm.all_reduce(values(comm.my_rank, 1 << 20, device), out=tensor)
    check_equal(tensor, total(comm.nranks, 1 << 20, device))
    for _ in range(10):
        with torch.cuda.use_mem_pool(pool):
            torch.empty(3 << 20, device=device).fill_(1)
    torch.cuda.synchronize()


@case
def shared_arrays(comm, device):
    """Memory of the package as a tensor, and back."""
    buffer = (mscclpp.HostBuffer if device.type == "cpu" else mscclpp.RawGpuBuffer)(4096)
    tensor = torch.from_dlpack(buffer.to_dlpack(data_type=str(torch.float16), shape=[2, 8]))
    assert tensor.shape == (2, 8) and tensor.device.type == device.type and tensor.data_ptr() == buffer.data()
    tensor.fill_(comm.my_rank + 1)
    del buffer  # the tensor keeps the memory
    check_equal(comm.all_reduce(tensor, op="max"), torch.full((2, 8), comm.nranks, dtype=torch.float16))


@contextlib.contextmanager
def process_group(comm, device):
    """A process group of torch.distributed beside the group; its name."""
    with tempfile.TemporaryDirectory() as folder:
        path = torch.zeros(256, dtype=torch.uint8, device=device)
        if comm.my_rank == 0:
            encoded = os.path.join(folder, "store").encode()
            path[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
        file = bytes(comm.broadcast(path, root=0).tolist()).rstrip(b"\0").decode()
        store = dist.FileStore(file, comm.nranks)
        dist.init_process_group("mscclpp", store=store, rank=comm.my_rank, world_size=comm.nranks)
        try:
            yield dist.group.WORLD.group_name
        finally:
            dist.barrier()
            dist.destroy_process_group()


@case
def symmetric_memory(comm, device):
    import mscclpp.torch.symmetric_memory
    from torch.distributed import _symmetric_memory as symm_mem

    rank, ranks, count = comm.my_rank, comm.nranks, 1 << 16
    symm_mem.set_backend("MSCCLPP")
    assert symm_mem.get_backend(device) == "MSCCLPP"
    with process_group(comm, device) as group:
        tensor = symm_mem.empty(count, dtype=torch.bfloat16, device=device)
        memory = symm_mem.rendezvous(tensor, group)
        tensor.copy_(values(rank, count, device, torch.bfloat16))
        memory.barrier()
        for peer in range(ranks):
            check_equal(memory.get_buffer(peer, (count,), torch.bfloat16), values(peer, count, device, torch.bfloat16))
        memory.barrier(channel=1)
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        for step in range(100):
            memory.get_buffer(right, (1,), torch.bfloat16, 7).fill_(step + rank)
            memory.put_signal(right, channel=2)
            memory.wait_signal(left, channel=2)
            assert tensor[7] == step + left
            memory.put_signal(left, channel=3)
            memory.wait_signal(right, channel=3)
        tensor.copy_(values(rank, count, device, torch.bfloat16))
        wanted = total(ranks, count, device, torch.bfloat16)
        if device.type == "cuda":
            check_symmetric_operators(tensor, memory, group, wanted, values(rank, count, device, torch.bfloat16))
        memory.barrier()
        dist.all_reduce(tensor)
        check_equal(tensor, wanted)
        del memory, tensor


def check_symmetric_operators(tensor, memory, group, wanted, own):
    """PyTorch's own operators, eagerly and in a graph, mixed with the signals of this library."""
    ops = torch.ops.symm_mem
    check_equal(ops.one_shot_all_reduce(tensor, "sum", group), wanted)
    ops.two_shot_all_reduce_(tensor, "sum", group)
    check_equal(tensor, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.copy_(own)
        memory.barrier(4)
        reduced = ops.one_shot_all_reduce(tensor, "sum", group)
        memory.barrier(4)
    for _ in range(10):
        graph.replay()
        check_equal(reduced, wanted)


def work(comm, kind):
    device = torch.device(kind)
    if kind == "cuda":
        local_rank = int(os.environ.get("LOCAL_RANK", comm.my_rank))
        device = torch.device(kind, local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    for function in CASES:
        function(comm, device)
        if kind == "cuda":
            torch.cuda.synchronize()
        if comm.my_rank == 0:
            print(f"{function.__name__}: ok", flush=True)
    return [function.__name__ for function in CASES]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, default=2, help="without a launcher")
    options = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        mscclpp.run(options.ranks, work, options.device)
        return
    with mscclpp.init() as comm:
        work(comm, options.device)


if __name__ == "__main__":
    main()
