"""The backend `mscclpp` of torch.distributed: `init_process_group("mscclpp")`, or `"cpu:gloo,cuda:mscclpp"`.

`import mscclpp.torch` registers it. An entry point would do so in every program that imports torch, and PyTorch then
treats groups of other backends differently (it warns about "cpu:gloo"). The compiled part is loaded with the first
process group.
"""

import atexit
import importlib
import pathlib

from .errors import InvalidUsage


def register():
    """Makes the name `mscclpp` known to torch.distributed, for CPU and CUDA tensors."""
    from torch import distributed

    if distributed.is_available() and not hasattr(distributed.Backend, "MSCCLPP"):
        distributed.Backend.register_backend("mscclpp", create, extended_api=True, devices=["cpu", "cuda"])


def create(options, pg_options=None):
    """Makes this rank's backend of a process group; torch.distributed calls it on all ranks.

    pg_options: an `Options` of this backend, or None. Raises InvalidUsage if the package has no compiled part for this
    version of PyTorch, and the errors of TcpBootstrap if ranks are missing.
    """
    shim = load()
    if pg_options is None:
        pg_options = shim.Options()
    elif not isinstance(pg_options, shim.Options):
        raise InvalidUsage(f"pg_options is a {type(pg_options).__name__}: pass mscclpp.c10d.load().Options(), or None")
    pg_options._timeout = options.timeout
    pg_options.group_name = options.group_id
    pg_options.global_ranks_in_group = options.global_ranks_in_group
    return shim.Backend(options.store, options.group_rank, options.group_size, pg_options)


def load():
    """The compiled part for this version of PyTorch, which makes symmetric memory known to it, too.

    Raises InvalidUsage if the package has none.
    """
    import torch

    version = ".".join(torch.__version__.split(".")[:2])
    try:
        shim = importlib.import_module(f"._c10d_{version.replace('.', '_')}", __package__)
    except ModuleNotFoundError:
        built = sorted(
            path.name.split(".")[0].removeprefix("_c10d_").replace("_", ".")
            for path in pathlib.Path(__file__).parent.glob("_c10d_*")
        )
        have = f"for PyTorch {' and '.join(built)}" if built else "without it"
        raise InvalidUsage(
            f"the backend mscclpp is compiled for one minor version of PyTorch, this is {version}, and the package was "
            f"built {have}: build it with -Dtorch=enabled where PyTorch {version} is installed"
        ) from None
    # Peers see that this rank leaves in order, and threads end while they can still take the interpreter's lock.
    atexit.unregister(shim.shutdown_all)
    atexit.register(shim.shutdown_all)
    return shim
