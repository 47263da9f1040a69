#!/usr/bin/env python3
"""All-reduces beside matrix products, in PyTorch: by how much each slows the other down. Needs a GPU for each rank.

  torchrun --nproc-per-node 2 bench/nccl_api/beside_gemm.py
  LD_PRELOAD=<libdir>/mscclpp-nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/nccl_api/beside_gemm.py

A stream computes a row of matrix products of bfloat16 and another one makes all-reduces, as in a backward pass whose
gradients are reduced in buckets. Alone the all-reduces take about half as long as the products; both start at once. A
line for each size: the time of all products and of all all-reduces, alone and together, on the slowest rank, and the
time that the products lose for each all-reduce. NCCL_MAX_CTAS limits the blocks of either library.
"""

import argparse
import ctypes
import json
import os

import torch
import torch.distributed as dist


def library():
    """The library that has NCCL's place."""
    text = ctypes.CDLL(None)
    try:
        text = text.ncclGetErrorString
    except AttributeError:
        return "NCCL"
    text.restype = ctypes.c_char_p
    internal_error = 3
    return "mscclpp" if b"mscclpp" in text(internal_error) else "NCCL"


def slowest(values):
    tensor = torch.tensor(values, device="cuda", dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def measure(works):
    """Runs rows of calls, (call, count) each, on streams that start at once; returns the time of each row, in us."""
    streams = [torch.cuda.Stream() for _ in works]
    start = torch.cuda.Event(enable_timing=True)
    ends = [torch.cuda.Event(enable_timing=True) for _ in works]
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(40_000_000)  # about 20 ms, in which the host enqueues what follows
    start.record()
    for stream in streams:
        stream.wait_event(start)
    most = max(count for _, count in works)
    done = [0] * len(works)
    for step in range(1, most + 1):  # in turns, as a backward pass does
        for i, (call, count) in enumerate(works):
            with torch.cuda.stream(streams[i]):
                while done[i] < count * step // most:
                    call()
                    done[i] += 1
    for stream, end in zip(streams, ends):
        end.record(stream)
    torch.cuda.synchronize()
    return slowest([start.elapsed_time(end) * 1000 for end in ends])


def median_of(repeats, works):
    measure(works)  # warms up
    times = [measure(works) for _ in range(repeats)]
    return [sorted(each)[repeats // 2] for each in zip(*times)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 20, 16 << 20, 64 << 20, 256 << 20])
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of the matrices")
    parser.add_argument("--products", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5, help="of which the median is reported")
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    left = torch.randn(arguments.size, arguments.size, device=device, dtype=torch.bfloat16)
    right = torch.randn_like(left)
    product = torch.empty_like(left)
    products = (lambda: torch.matmul(left, right, out=product), arguments.products)
    (products_alone,) = median_of(arguments.repeats, [products])
    ctas = os.environ.get("NCCL_MAX_CTAS", "default")
    for size in arguments.bytes:
        values = torch.zeros(size // 2, device=device, dtype=torch.bfloat16)
        (one,) = median_of(1, [(lambda values=values: dist.all_reduce(values), 20)])
        count = min(max(int(products_alone / 2 / (one / 20)), 1), 400)
        reductions = (lambda values=values: dist.all_reduce(values), count)
        (reductions_alone,) = median_of(arguments.repeats, [reductions])
        both = median_of(arguments.repeats, [products, reductions])
        if rank == 0:
            line = {"library": library(), "max_ctas": ctas, "bytes": size, "all_reduces": count}
            line |= {"matrix": arguments.size, "products": arguments.products}
            line |= {"products_us": round(products_alone, 1), "products_beside_us": round(both[0], 1)}
            line |= {"all_reduces_us": round(reductions_alone, 1), "all_reduces_beside_us": round(both[1], 1)}
            line |= {"lost_for_each_us": round((both[0] - products_alone) / count, 1)}
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
