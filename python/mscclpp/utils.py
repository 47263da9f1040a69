"""Names that users of MSCCL++ know from this module."""

from .dtypes import to_dtype as torch_dtype_to_mscclpp_dtype
from .kernels import Kernel, KernelBuilder, pack

__all__ = ["Kernel", "KernelBuilder", "pack", "torch_dtype_to_mscclpp_dtype"]
