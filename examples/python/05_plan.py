"""An algorithm of one's own as a plan: an all-gather in MSCCL++'s language, and an all-reduce in MSCCL's.

python 05_plan.py, on CPU ranks; torchrun --nproc_per_node=8 05_plan.py --device cuda, on GPUs.
"""

import argparse
import os

import mscclpp
import numpy
from mscclpp.language import AllGather, CollectiveProgram, MemoryChannel, Rank, msccl


def all_gather(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """Each rank writes its input to all outputs."""
    ranks = range(spec.world_size)
    with CollectiveProgram.from_spec(spec) as program:
        channels = {(peer, rank): MemoryChannel(peer, rank) for rank in ranks for peer in ranks if peer != rank}
        for rank in ranks:
            own, peers = Rank(rank).get_input_buffer()[0], [peer for peer in ranks if peer != rank]
            for peer in peers:
                channels[peer, rank].signal(tb=0)  # this rank's output may be written
            Rank(rank).copy(Rank(rank).get_output_buffer()[rank], own, tb=0)
            for peer in peers:
                channels[peer, rank].wait(tb=0)
                channels[peer, rank].put(Rank(peer).get_output_buffer()[rank], own, tb=0)
                channels[peer, rank].signal(tb=0)
            for peer in peers:
                channels[peer, rank].wait(tb=0)
    return program


def ring_all_reduce(ranks: int) -> mscclpp.Plan:
    """Each chunk is reduced around the ring, then copied around it."""
    collective = msccl.AllReduce(ranks, 1, True)
    with msccl.MSCCLProgram("ring", msccl.fully_connected(ranks), collective, instances=2) as program:
        for part in range(ranks):
            at = msccl.chunk(part, msccl.Buffer.input, part)
            for step in range(1, ranks):
                at = msccl.chunk((part + step) % ranks, msccl.Buffer.input, part).reduce(at)
            for step in range(ranks, 2 * ranks - 1):
                at = at.copy((part + step) % ranks, msccl.Buffer.input, part)
        msccl.Check()
    return program.compile()


def main(comm: mscclpp.CommGroup, device: str) -> None:
    rank, ranks = comm.my_rank, comm.nranks
    spec = mscclpp.AlgoSpec(
        name="all_gather", collective=AllGather(ranks), nranks_per_node=ranks, world_size=ranks, instances=4
    )
    gather = mscclpp.compile(algo=all_gather, algo_spec=spec, rank=rank)
    reduce = mscclpp.make_algorithm(ring_all_reduce(ranks), rank)

    device_type = mscclpp.DeviceType.CPU if device == "cpu" else mscclpp.DeviceType.GPU
    executor = mscclpp.Executor(comm.communicator, device_type=device_type)
    own = numpy.full(1000, rank + 1, numpy.float32)
    every = numpy.empty(ranks * 1000, numpy.float32)
    stream = 0
    if device == "cuda":
        import torch

        own, every = torch.from_numpy(own).cuda(), torch.from_numpy(every).cuda()
        stream = torch.cuda.current_stream().cuda_stream

    def execute(algorithm: mscclpp.Algorithm, source, target) -> None:
        addresses = [a.data_ptr() if device == "cuda" else a.ctypes.data for a in (source, target)]
        result = algorithm.execute(
            comm.communicator, *addresses, source.nbytes, target.nbytes, mscclpp.DataType.float32,
            mscclpp.ReduceOp.SUM, stream, executor,
        )  # fmt: skip
        if result != mscclpp.CommResult.CommSuccess:
            raise RuntimeError(f"{algorithm.name} failed: {result}")

    execute(gather, own, every)
    execute(reduce, own, own)
    if device == "cuda":
        torch.cuda.synchronize()
    gathered, reduced = (numpy.asarray(a.cpu() if device == "cuda" else a) for a in (every, own))
    assert (gathered.reshape(ranks, 1000) == numpy.arange(1, ranks + 1)[:, None]).all()
    assert (reduced == ranks * (ranks + 1) / 2).all()
    comm.barrier()
    executor.reset()  # before the arrays are freed, which it may have registered
    if rank == 0:
        print(f"{ranks} ranks: right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    if device == "cuda":
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        with mscclpp.init() as group:
            main(group, device)
    else:
        mscclpp.run(3, main, device)
