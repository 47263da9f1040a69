"""03: ranks pass a tensor around a ring through port channels. On CPU ranks this program is the kernel itself; on GPUs
a kernel compiled at run time makes the same calls. Without a launcher it starts three CPU ranks; under torchrun, mpirun
or srun each process is one rank, of a GPU where torch finds one."""

import os

import mscclpp
import numpy
from mscclpp.utils import KernelBuilder, pack

COUNT = 1000

KERNEL = """
#include <mscclpp/channel/port.hpp>

// One thread: it sends this rank's tensor to the next rank, and receives that of the previous one.
extern "C" __global__ void passOn(mscclpp::PortChannelHandle next, mscclpp::PortChannelHandle previous,
                                  unsigned long long bytes) {
  next.putWithSignal(bytes, 0, bytes);
  previous.wait();
  next.flush();
}
"""


def on_cpu(comm, following, previous):
    tensor = comm.empty(2 * COUNT)  # the second half is for what arrives
    tensor[:COUNT] = comm.my_rank
    connections = comm.make_connection({following, previous}, mscclpp.Transport.SharedMemory)
    with mscclpp.ProxyService(device_type=mscclpp.DeviceType.CPU) as service:
        channels = comm.make_port_channels(service, tensor, connections)
        to_next, from_previous = channels[following].device_handle(), channels[previous].device_handle()
        to_next.put_with_signal(tensor.nbytes // 2, 0, tensor.nbytes // 2)
        from_previous.wait()
        to_next.flush()
        comm.barrier()  # nobody stops while others still use its memory
    return tensor[COUNT:]


def on_gpu(comm, following, previous):
    import torch

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", comm.my_rank)))
    kernel = KernelBuilder(code=KERNEL, kernel_name="passOn").get_compiled_kernel()
    tensor = torch.from_dlpack(mscclpp.GpuBuffer(2 * COUNT))
    tensor[:COUNT] = comm.my_rank
    connections = comm.make_connection({following, previous}, mscclpp.Transport.CudaIpc)
    with mscclpp.ProxyService() as service:
        channels = comm.make_port_channels(service, tensor, connections)
        arguments = pack(channels[following], channels[previous], numpy.uint64(tensor.nbytes // 2))
        kernel.launch_kernel(arguments, nblocks=1, nthreads=1)
        torch.cuda.synchronize()
        comm.barrier()
    return tensor[COUNT:].cpu().numpy()


def pass_on(comm, device="cpu"):
    following, previous = (comm.my_rank + 1) % comm.nranks, (comm.my_rank - 1) % comm.nranks
    received = (on_gpu if device == "cuda" else on_cpu)(comm, following, previous)
    assert (received == previous).all()
    return f"rank {comm.my_rank} of {comm.nranks}: right"


def has_gpu():
    try:
        import torch
    except ImportError:
        return False
    return mscclpp.has_cuda and torch.cuda.is_available()


if __name__ == "__main__":
    if any(name in os.environ for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")):
        with mscclpp.init() as comm:
            print(pass_on(comm, "cuda" if has_gpu() else "cpu"))
    else:
        print("\n".join(mscclpp.run(3, pass_on)))
