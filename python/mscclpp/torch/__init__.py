"""The PyTorch parts of the package: the backend `mscclpp` of torch.distributed, which importing this registers, and
operators for torch.compile and CUDA graphs. docs/python.md and docs/pytorch.md."""

from .. import c10d
from .ops import register  # first: it loads the operators
from . import functional

c10d.register()
