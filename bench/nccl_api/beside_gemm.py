#!/usr/bin/env python3
"""All-reduces beside matrix products, in PyTorch: by how much each slows the other down. Needs a GPU for each rank.

  torchrun --nproc-per-node 2 bench/nccl_api/beside_gemm.py
  LD_PRELOAD=<libdir>/mscclpp-nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/nccl_api/beside_gemm.py

A stream computes matrix products of bfloat16 without a pause while another one makes all-reduces without a pause, as
in a backward pass whose gradients are reduced in buckets. NCCL_MAX_CTAS limits the blocks of either library. Prints for
each size: the time of a product and of an all-reduce alone and together, on the slowest rank.
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


class Work:
    """A call that is repeated on a stream of its own."""

    def __init__(self, call):
        self.call = call
        self.stream = torch.cuda.Stream()
        self.start = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)

    def enqueue(self, calls, timed):
        """Makes the calls; those of `timed` are between the events."""
        first, last = timed
        with torch.cuda.stream(self.stream):
            for i in range(calls):
                if i == first:
                    self.start.record()
                self.call()
                if i == last:
                    self.end.record()

    def microseconds(self, timed):
        return self.start.elapsed_time(self.end) * 1000 / (timed[1] - timed[0])


def slowest(value):
    tensor = torch.tensor([value], device="cuda", dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor)


def alone(work, calls):
    timed = (calls // 4, calls - 1)
    work.enqueue(calls, timed)
    torch.cuda.synchronize()
    return slowest(work.microseconds(timed))


def together(works, times, milliseconds):
    """Both run for the same time: each has as many calls as fill it, of which the middle half is timed."""
    graphs = []
    for work, time in zip(works, times):
        calls = max(int(milliseconds * 1000 / time), 8)
        graphs.append((work, calls, (calls // 4, calls // 4 + calls // 2)))
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    # In turns, so that the host is ahead of both.
    longest = max(calls for _, calls, _ in graphs)
    done = [0] * len(graphs)
    for step in range(1, longest + 1):
        for i, (work, calls, timed) in enumerate(graphs):
            with torch.cuda.stream(work.stream):
                while done[i] < calls * step // longest:
                    if done[i] == timed[0]:
                        work.start.record()
                    work.call()
                    if done[i] == timed[1]:
                        work.end.record()
                    done[i] += 1
    torch.cuda.synchronize()
    return [slowest(work.microseconds(timed)) for work, _, timed in graphs]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 20, 16 << 20, 64 << 20, 256 << 20])
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of the matrices")
    parser.add_argument("--milliseconds", type=float, default=60, help="length of a measurement")
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    left = torch.randn(arguments.size, arguments.size, device=device, dtype=torch.bfloat16)
    right = torch.randn_like(left)
    product = torch.empty_like(left)
    gemm = Work(lambda: torch.matmul(left, right, out=product))
    gemm_time = alone(gemm, 60)
    if rank == 0:
        ctas = os.environ.get("NCCL_MAX_CTAS", "default")
        print(f"{library()}, NCCL_MAX_CTAS {ctas}, matrices of {arguments.size} x {arguments.size}", flush=True)
    for size in arguments.bytes:
        values = torch.zeros(size // 2, device=device, dtype=torch.bfloat16)
        reduction = Work(lambda values=values: dist.all_reduce(values))
        reduction_time = alone(reduction, 40)
        both = together([gemm, reduction], [gemm_time, reduction_time], arguments.milliseconds)
        if rank == 0:
            line = {"library": library(), "max_ctas": ctas, "bytes": size, "size": arguments.size}
            line |= {"gemm_us": round(gemm_time, 1), "gemm_beside_us": round(both[0], 1)}
            line |= {"all_reduce_us": round(reduction_time, 1), "all_reduce_beside_us": round(both[1], 1)}
            line |= {"gemm_slowdown": round(both[0] / gemm_time, 3)}
            line |= {"all_reduce_slowdown": round(both[1] / reduction_time, 3)}
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
