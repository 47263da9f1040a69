"""Memory of the library for tensors of PyTorch."""

import torch

from ..errors import InvalidUsage
from .ops import LIBRARY


def mem_pool() -> torch.cuda.MemPool:
    """A torch.cuda.MemPool of memory that peers can map. Raises InvalidUsage without a GPU.

    `with torch.cuda.use_mem_pool(pool):` allocates tensors in it. Their memory can be registered, on all ranks alike:
    `comm.collectives(mscclpp.DeviceType.GPU).register_buffer(tensor.data_ptr(), tensor.nbytes)`; results that lie in it
    are then stored without a copy. The registration ends, on all ranks, before the pool does.
    """
    if not torch.cuda.is_available():
        raise InvalidUsage("mem_pool() is for GPUs, and PyTorch finds none: use comm.empty() on CPU ranks")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(LIBRARY), "mscclpp_allocate", "mscclpp_free")
    return torch.cuda.MemPool(allocator.allocator())
