"""What PyTorch needs of the package: importing it registers the backend `mscclpp` of torch.distributed."""

from .. import c10d

c10d.register()
