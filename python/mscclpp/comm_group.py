"""The ranks of a job, as one object: set-up, collectives on arrays, registered memory."""

from __future__ import annotations

import atexit
import math
import os
import sys
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ._mscclpp import (
    Bootstrap,
    Collectives,
    Communicator,
    DeviceType,
    FusedGemms,
    HostBuffer,
    RawGpuBuffer,
    TcpBootstrap,
    size_of,
)
from .array_collectives import ArrayCollectives
from .array_gemms import ArrayGemms
from .arrays import view
from .channel_setup import ChannelSetup
from .dtypes import to_dtype
from .errors import InvalidUsage
from .tuning import Tuner

open_groups: weakref.WeakSet[CommGroup] = weakref.WeakSet()


class CommGroup(ChannelSetup, ArrayCollectives, ArrayGemms, Tuner):
    """This process as one rank of a group; `mscclpp.init()` makes one from what the launcher has set.

    By hand, with one of: `mpi_comm`, a communicator of mpi4py; `torch_group`, a group of torch.distributed;
    `interfaceIpPortTrio`, "interface:ip:port" or "ip:port" at which rank 0 listens, with `rank` and `size`; or
    `bootstrap`, a connected one. All ranks make it together, within `timeout` seconds: by default
    MSCCLPP_BOOTSTRAP_TIMEOUT.

    It is a context manager: leaving it closes it.
    """

    def __init__(self, mpi_comm: Any = None, torch_group: Any = None, interfaceIpPortTrio: str = "",
                 rank: int | None = None, size: int | None = None, *, bootstrap: Bootstrap | None = None,
                 timeout: int | None = None) -> None:  # fmt: skip
        if bootstrap is None:
            bootstrap = _connect(mpi_comm, torch_group, interfaceIpPortTrio, rank, size, timeout)
        self.bootstrap = bootstrap
        self.communicator = Communicator(bootstrap)
        self.my_rank = bootstrap.get_rank()
        self.nranks = bootstrap.get_n_ranks()
        self.nranks_per_node = bootstrap.get_n_ranks_per_node()
        self._collectives = {}
        self._fused_gemms: dict[DeviceType, FusedGemms] = {}
        self._buffers: dict[int, Any] = {}
        self._closing: list[Callable[[], None]] = []
        self._is_inherited = False  # from the process that this one was forked from
        open_groups.add(self)

    def __enter__(self) -> CommGroup:
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        # After a failure the other ranks may not arrive.
        self.close(barrier=error_type is None)

    def __repr__(self) -> str:
        return f"<CommGroup: rank {self.my_rank} of {self.nranks}>"

    def barrier(self) -> None:
        """Returns once every rank has called it. It does not wait for work on GPU streams: synchronise these first."""
        self._require_open()
        self.bootstrap.barrier()

    def collectives(self, device_type: DeviceType) -> Collectives:
        """The Collectives for buffers of a device type; all ranks make it together, at the first call for that type."""
        self._require_open()
        if device_type not in self._collectives:
            self._collectives[device_type] = Collectives(self.communicator, device_type)
        return self._collectives[device_type]

    def fused_gemms(self, device_type: DeviceType) -> FusedGemms:
        """The FusedGemms for buffers of a device type; all ranks make it together, at the first call for that type."""
        self._require_open()
        if device_type not in self._fused_gemms:
            collectives = self.collectives(device_type)
            self._fused_gemms[device_type] = FusedGemms(self.communicator, device_type, collectives)
        return self._fused_gemms[device_type]

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32", device: str | None = None) -> Any:
        """An array in memory that all ranks have mapped, which collectives write without a copy; zero-filled.

        Called by all ranks with the same arguments. dtype: of torch, which gives a tensor, or of numpy, or a name.
        device: "cpu" or "cuda", the current GPU; by default "cuda" for a dtype of torch where there is a GPU. A result
        lies at the same place of such an array on all ranks. The memory lives until free() or close().
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        torch: Any = sys.modules.get("torch")
        for_torch = torch is not None and isinstance(dtype, torch.dtype)
        if device is None:
            device = "cuda" if for_torch and torch.cuda.is_available() else "cpu"
        if device not in ("cpu", "cuda"):
            raise InvalidUsage(f"device is {device!r}: use 'cpu' or 'cuda'")
        element = to_dtype(dtype)
        nbytes = math.prod(shape) * size_of(element)
        on_gpu = device == "cuda"
        buffer: Any = RawGpuBuffer(nbytes) if on_gpu else HostBuffer(nbytes)
        collectives = self.collectives(DeviceType.GPU if on_gpu else DeviceType.CPU)
        registration = collectives.register_buffer(buffer.data(), nbytes)
        if nbytes > 0:
            self._buffers[buffer.data()] = (buffer, registration)
        if for_torch:
            return torch.from_dlpack(buffer.to_dlpack()).view(dtype).reshape(shape)
        if on_gpu:
            return buffer.to_dlpack(element.name, shape)
        return _to_numpy(buffer, dtype, shape)

    def free(self, array: Any) -> None:
        """Ends the registration of an array of empty(). Called by all ranks, when no call uses it any more."""
        self._require_open()
        buffer = self._buffers.pop(view(array).address, None)
        if buffer is None:
            raise InvalidUsage("free() takes an array that empty() of this group returned, and takes it once")
        self.barrier()
        buffer[1].end()

    def close(self, barrier: bool = True) -> None:
        """Leaves the group. With `barrier`, waits for the other ranks first, which may still read this one's memory."""
        if self.communicator is None:
            return
        try:
            if barrier:
                self.barrier()
        finally:
            for end in self._closing:
                end()
            for _, registration in self._buffers.values():
                registration.end()
            self._buffers.clear()
            self._fused_gemms.clear()
            self._collectives.clear()
            self.communicator = None  # type: ignore[assignment]
            self.bootstrap = None  # type: ignore[assignment]
            open_groups.discard(self)

    def _leave_to_parent(self) -> None:
        # The child shares sockets and memory with its parent, and has none of the threads: it lets go of all of them.
        self._buffers, self._collectives, self._fused_gemms = {}, {}, {}
        self._closing.clear()
        if self._group is not None:
            self._group.clear()
        self.communicator = None  # type: ignore[assignment]
        self.bootstrap = None  # type: ignore[assignment]
        self._is_inherited = True

    def at_close(self, function: Callable[[], None]) -> None:
        """Calls function() in close(), before the collectives end. Raises InvalidUsage if the group is closed."""
        self._require_open()
        self._closing.append(function)

    def _require_open(self) -> None:
        if self._is_inherited:
            raise InvalidUsage(
                f"this process was forked from rank {self.my_rank}, whose group it cannot use: call it in the rank's "
                "process, or make another one here"
            )
        if self.communicator is None:
            raise InvalidUsage("the group is closed: make another one")


def _connect(mpi_comm: Any, torch_group: Any, address: str, rank: int | None, size: int | None,
             timeout: int | None) -> TcpBootstrap:  # fmt: skip
    if sum(bool(way) for way in (mpi_comm is not None, torch_group is not None, address)) != 1:
        raise InvalidUsage("CommGroup takes one of mpi_comm, torch_group, interfaceIpPortTrio and bootstrap")
    if mpi_comm is not None:
        rank, size = mpi_comm.Get_rank(), mpi_comm.Get_size()
    elif torch_group is not None:
        rank, size = torch_group.rank(), torch_group.size()
    elif rank is None or size is None:
        raise InvalidUsage("with interfaceIpPortTrio, pass rank= and size= too")
    bootstrap = TcpBootstrap.create(rank, size)
    if address:
        bootstrap.initialize(address, timeout)
        return bootstrap
    unique_id: Any = TcpBootstrap.create_unique_id() if rank == 0 else None
    if mpi_comm is not None:
        unique_id = mpi_comm.bcast(unique_id, root=0)
    else:
        from torch import distributed

        box = [unique_id]
        distributed.broadcast_object_list(box, src=distributed.get_global_rank(torch_group, 0), group=torch_group)
        unique_id = box[0]
    bootstrap.initialize(unique_id, timeout)
    return bootstrap


def _to_numpy(buffer: HostBuffer, dtype: Any, shape: tuple[int, ...]) -> Any:
    try:
        import numpy
    except ImportError:
        raise InvalidUsage("empty() on the CPU needs numpy, or a dtype of torch: pip install numpy") from None
    if dtype == "bfloat16" or str(dtype).startswith("float8"):
        import ml_dtypes  # numpy knows these types by it

        dtype = getattr(ml_dtypes, str(dtype))
    return numpy.asarray(buffer.to_dlpack()).view(dtype).reshape(shape)


def _leave_groups_to_parent() -> None:
    for group in list(open_groups):
        group._leave_to_parent()
    open_groups.clear()


os.register_at_fork(after_in_child=_leave_groups_to_parent)


@atexit.register
def _close_open_groups() -> None:
    # Peers then see that this rank has left in order, and threads end while the interpreter still runs.
    for group in list(open_groups):
        group.close(barrier=False)
