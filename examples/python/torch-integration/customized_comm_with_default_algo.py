"""The library's algorithms on tensors of PyTorch, chosen by name.

MSCCLPP_MASTER_ADDR=127.0.0.1 MSCCLPP_MASTER_PORT=29501 torchrun --nproc_per_node=8 customized_comm_with_default_algo.py
With --device cpu it runs over CPU ranks.
"""

import argparse
import os

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch


def load_algorithms(scratch_buffer: torch.Tensor, rank: int, device: str):
    return mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(
        scratch_buffer=scratch_buffer.data_ptr(),
        scratch_buffer_size=scratch_buffer.nbytes,
        rank=rank,
        device_type=mscclpp.DeviceType.CPU if device == "cpu" else mscclpp.DeviceType.GPU,
    )


class CustomizedComm:
    def __init__(self, comm: mscclpp.CommGroup, device: str):
        self.comm = comm
        # MSCCL++ needs scratch from its users. This library's algorithms allocate what they need, and take it or not.
        buffer = mscclpp.HostBuffer(1 << 20) if device == "cpu" else mscclpp.RawGpuBuffer(1 << 20)
        self.scratch_buffer = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(data_type=str(torch.float16)))
        algorithms = load_algorithms(self.scratch_buffer, comm.my_rank, device)
        self._algo_small, self._algo_large = (
            next(algo for algo in algorithms if algo.collective == "allreduce" and algo.name == name)
            for name in ("default_allreduce_nvls_packet", "default_allreduce_nvls_with_copy")
        )

    def all_reduce(self, tensor: torch.Tensor, stream=None):
        algo = self._algo_small if tensor.nbytes < (1 << 20) else self._algo_large
        result = algo.execute(
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
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
    for count in (1, 1000, 600_007):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = (torch.arange(count, device=device) % 4 + rank).to(dtype)
            comm.all_reduce(tensor)
            expected = (torch.arange(count, device=device) % 4 * ranks + sum(range(ranks))).to(dtype)
            assert torch.equal(tensor, expected), f"{count} elements of {dtype}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    group = init_communicator()
    check(CustomizedComm(group, device), device)
    group.barrier()
    if group.my_rank == 0:
        print(f"{group.nranks} ranks: right")
