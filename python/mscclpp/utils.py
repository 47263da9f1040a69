"""Names that users of MSCCL++ know from this module."""

from .dtypes import to_dtype as torch_dtype_to_mscclpp_dtype

__all__ = ["torch_dtype_to_mscclpp_dtype"]
