"""A program in MSCCL++'s language on tensors of PyTorch: written, proven, and executed as a plan.

MSCCLPP_MASTER_ADDR=127.0.0.1 MSCCLPP_MASTER_PORT=29501 torchrun --nproc_per_node=8 customized_comm_with_dsl.py
With --device cpu it runs over CPU ranks.
"""

import argparse
import os

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch
from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank


def allreduce_nvls(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """An all-reduce: each rank reduces its part of all inputs through the switch, and stores it to all."""
    gpu_size = spec.world_size

    with CollectiveProgram(
        spec.name,
        spec.collective,
        gpu_size,
        instances=spec.instances,
        protocol=spec.protocol,
        num_threads_per_block=spec.num_threads_per_block,
        min_message_size=spec.min_message_size,
        max_message_size=spec.max_message_size,
    ) as program:
        nvls_chan = SwitchChannel(rank_list=[gpu for gpu in range(gpu_size)], buffer_type=BufferType.input)

        channels = {}
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)] = MemoryChannel(peer, gpu)

        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True, data_sync=SyncType.after)

        for gpu in range(gpu_size):
            rank = Rank(gpu)
            input_buffer = rank.get_input_buffer()
            nvls_chan.at_rank(gpu).reduce(buffer_offset=gpu, size=1, dst_chunk=input_buffer[gpu : gpu + 1], tb=0)
            nvls_chan.at_rank(gpu).broadcast(
                src_chunk=input_buffer[gpu : gpu + 1], buffer_offset=gpu, size=1, tb=0
            )

        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True, data_sync=SyncType.before)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True)

    return program


def setup_algorithm(rank: int, world_size: int, nranks_per_node: int):
    spec = mscclpp.language.AlgoSpec(
        name="allreduce_nvls",
        collective=AllReduce(world_size, 1, True),
        nranks_per_node=nranks_per_node,
        world_size=world_size,
        in_place=True,
        instances=nranks_per_node,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 10,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )
    return mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=rank)


class CustomizedComm:
    def __init__(self, comm: mscclpp.CommGroup, algorithm: mscclpp.Algorithm, device: str):
        self.comm = comm
        device_type = mscclpp.DeviceType.CPU if device == "cpu" else mscclpp.DeviceType.GPU
        self.executor = mscclpp.Executor(comm.communicator, device_type=device_type)
        self.algorithm = algorithm

    def all_reduce(self, tensor: torch.Tensor, stream=None):
        result = self.algorithm.execute(
            comm=self.comm.communicator,
            executor=self.executor,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        if result != mscclpp.CommResult.CommSuccess:
            raise RuntimeError(f"the all-reduce failed: {result}")


def init_communicator():
    """The group of the ranks that torchrun has started, which meet at an address of rank 0."""
    address = f"{os.environ['MSCCLPP_MASTER_ADDR']}:{os.environ['MSCCLPP_MASTER_PORT']}"
    return mscclpp.CommGroup(
        interfaceIpPortTrio=address, rank=int(os.environ["RANK"]), size=int(os.environ["WORLD_SIZE"])
    )


def check(comm: CustomizedComm, device: str):
    rank, ranks = comm.comm.my_rank, comm.comm.nranks
    for count in (1000, 100_007):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = (torch.arange(count, device=device) % 4 + rank).to(dtype)
            expected = (torch.arange(count, device=device) % 4 * ranks + sum(range(ranks))).to(dtype)
            comm.all_reduce(tensor)
            assert torch.equal(tensor, expected), f"{count} elements of {dtype}"
            comm.comm.barrier()
            comm.executor.reset()  # before the tensor, which it may have registered, is freed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    group = init_communicator()
    ranks_per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    check(CustomizedComm(group, setup_algorithm(group.my_rank, group.nranks, ranks_per_node), device), device)
    group.barrier()
    if group.my_rank == 0:
        print(f"{group.nranks} ranks: right")
