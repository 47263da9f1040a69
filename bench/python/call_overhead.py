"""What a short all-reduce costs the host that calls it, eagerly: mscclpp beside torch.distributed.

python3 bench/python/call_overhead.py                             # one CPU rank, numpy and torch, beside gloo
python3 bench/python/call_overhead.py --device cuda --ranks 2     # on GPUs: the time to enqueue, beside NCCL

Needs the installed package; torch where there is one. Microseconds of a call on rank 0: the minimum and the median of
batches, each of which is one loop, after a barrier; on GPUs the stream is synchronised between batches only. On CPU
ranks the time contains the collective, which the first line shows alone: use one rank to have little of it.
"""

import argparse
import statistics
import tempfile
import time

import mscclpp


def measure(call, barrier, options):
    for _ in range(options.batch):
        call()
    times = []
    for _ in range(options.batches):
        barrier()
        begin = time.perf_counter()
        for _ in range(options.batch):
            call()
        times.append((time.perf_counter() - begin) / options.batch * 1e6)
    return min(times), statistics.median(times)


def array_calls(comm, options):
    """(name, function) for the arrays of the libraries that are there."""
    try:
        import torch
    except ImportError:
        torch = None
    if options.device == "cpu":
        import numpy

        source, target = numpy.ones((2, options.elements), numpy.float32)
        run = comm.collectives(mscclpp.DeviceType.CPU).run
        collective, dtype = mscclpp.CollectiveType.all_reduce, mscclpp.DataType.float32
        addresses = source.ctypes.data, target.ctypes.data
        yield "Collectives.run, by address", lambda: run(collective, *addresses, options.elements, dtype)
        yield "numpy, out=another", lambda: comm.all_reduce(source, out=target)
        yield "numpy, in place", lambda: comm.all_reduce(target, op="max", out=target)
        yield "numpy, new result", lambda: comm.all_reduce(source)
    if torch is None:
        return
    tensors = torch.ones(2, options.elements, device=options.device)
    first, second = tensors[0], tensors[1]
    yield "torch, out=another", lambda: comm.all_reduce(first, out=second)
    yield "torch, in place", lambda: comm.all_reduce(second, op="max", out=second)
    yield "torch, new result", lambda: comm.all_reduce(first)
    backend = "nccl" if options.device == "cuda" else "gloo"
    store = torch.distributed.FileStore(options.store, comm.nranks)
    torch.distributed.init_process_group(backend, store=store, rank=comm.my_rank, world_size=comm.nranks)
    maximum = torch.distributed.ReduceOp.MAX
    yield f"torch.distributed, {backend}, in place", lambda: torch.distributed.all_reduce(second, op=maximum)
    torch.distributed.destroy_process_group()


def work(comm, options):
    synchronize = None
    if options.device == "cuda":
        import torch

        torch.cuda.set_device(comm.my_rank)
        synchronize = torch.cuda.synchronize

    def barrier():
        if synchronize:
            synchronize()
        comm.barrier()

    return [(name, *measure(call, barrier, options)) for name, call in array_calls(comm, options)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--elements", type=int, default=4)
    parser.add_argument("--batch", type=int, default=100, help="calls of a batch")
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.store = f"{folder}/store"
        results = mscclpp.run(options.ranks, work, options)
    print(f"{'us a call':40} {'minimum':>8} {'median':>8}")
    for name, least, median in results[0]:
        print(f"{name:40} {least:8.2f} {median:8.2f}")


if __name__ == "__main__":
    main()
