"""Symmetric memory for torch.distributed._symmetric_memory: importing this makes the name "MSCCLPP" known to its
set_backend(), and serves CPU tensors at once. Raises InvalidUsage if the package has no part for this PyTorch.

    import mscclpp.torch.symmetric_memory
    from torch.distributed import _symmetric_memory as symm_mem

    symm_mem.set_backend("MSCCLPP")                              # for CUDA tensors; before the first allocation
    tensor = symm_mem.empty(1024, device="cuda")
    memory = symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)  # called by all ranks

docs/python.md says what there is.
"""

from .. import c10d

c10d.load()
