"""01: an all-reduce from Python, over CPU ranks. Without a launcher it starts two ranks; under torchrun, mpirun or srun
each process is one. On GPUs the arrays are CUDA tensors of torch, and nothing else changes."""

import os

import mscclpp
import numpy


def reduce(comm):
    n = comm.nranks
    for count in (1, 1000, 300_007):
        data = numpy.arange(count, dtype=numpy.float32) % 10 + comm.my_rank
        total = comm.all_reduce(data)  # a new array; out=data works in place

        # Rank r contributed i % 10 + r.
        expected = numpy.arange(count, dtype=numpy.float32) % 10 * n + n * (n - 1) / 2
        numpy.testing.assert_array_equal(total, expected)

    # Memory that all ranks have mapped: results are stored into it without a copy.
    mapped = comm.empty(1 << 16)
    mapped[:] = comm.my_rank + 1
    comm.all_reduce(mapped, op="max", out=mapped)
    assert (mapped == n).all()
    return f"rank {comm.my_rank} of {n}: right"


if __name__ == "__main__":
    if any(name in os.environ for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")):
        with mscclpp.init() as comm:
            print(reduce(comm))
    else:
        print("\n".join(mscclpp.run(2, reduce)))
