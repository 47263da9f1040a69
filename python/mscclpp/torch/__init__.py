"""PyTorch parts of the package: operators for torch.compile and CUDA graphs. docs/python.md."""

from .ops import register  # first: it loads the operators
from . import functional
from .memory import mem_pool
