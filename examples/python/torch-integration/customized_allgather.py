"""An algorithm of one's own: customized_allgather.cu is compiled where the program runs, and executed on tensors.

MSCCLPP_MASTER_ADDR=127.0.0.1 MSCCLPP_MASTER_PORT=29501 torchrun --nproc_per_node=8 customized_allgather.py
With --device cpu it runs over CPU ranks. All ranks may compile at once: one does, and the others wait.
"""

import argparse
import os

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch


class CustomizedComm:
    def __init__(self, comm: mscclpp.CommGroup, device: str):
        self.comm = comm
        mscclpp_native = mscclpp.compile_native(
            name="mscclpp_native", file=os.path.join(os.path.dirname(__file__), "customized_allgather.cu")
        )
        capsule = mscclpp_native.create_allgather_algorithm(on_cpu=device == "cpu")
        self.algorithm = mscclpp.Algorithm.create_from_native_capsule(capsule)

    def all_gather(self, tensor: torch.Tensor, out_tensor: torch.Tensor, stream=None):
        result = self.algorithm.execute(
            self.comm.communicator,
            tensor.data_ptr(),
            out_tensor.data_ptr(),
            tensor.nbytes,
            out_tensor.nbytes,
            mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        if result != mscclpp.CommResult.CommSuccess:
            raise RuntimeError(f"the all-gather failed: {result}")


def init_communicator():
    """The group of the ranks that torchrun has started, which meet at an address of rank 0."""
    address = f"{os.environ['MSCCLPP_MASTER_ADDR']}:{os.environ['MSCCLPP_MASTER_PORT']}"
    return mscclpp.CommGroup(
        interfaceIpPortTrio=address, rank=int(os.environ["RANK"]), size=int(os.environ["WORLD_SIZE"])
    )


def check(comm: CustomizedComm, device: str):
    rank, ranks = comm.comm.my_rank, comm.comm.nranks
    for count in (1, 1000, 300_007):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = (torch.arange(count, device=device) % 10 + rank).to(dtype)
            out = torch.empty(ranks * count, dtype=dtype, device=device)
            comm.all_gather(tensor, out)
            expected = [(torch.arange(count, device=device) % 10 + r).to(dtype) for r in range(ranks)]
            assert torch.equal(out, torch.cat(expected)), f"{count} elements of {dtype}"


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
