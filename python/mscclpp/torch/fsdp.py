"""The all-gather of FSDP2 in memory that all ranks have mapped, for FSDPModule.set_custom_all_gather().

    fully_shard(model)
    mscclpp.torch.fsdp.use(model)   # on all ranks, after the last fully_shard

docs/pytorch.md says what it saves.
"""

import math
import weakref
from collections.abc import Sequence

import torch
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_api

from ..errors import InvalidUsage


class _Buffer:
    """Registered memory, and the tensor by which it is in use."""

    def __init__(self, memory):
        self._memory = memory
        self._user = lambda: None

    @property
    def is_free(self):
        return self._user() is None

    def lend(self, size):
        user = self._memory.view(size)
        self._user = weakref.ref(user)  # it lasts as long as the tensor, not as its memory
        return user


class AllGather(_fsdp_api.AllGather):
    """All-gathers of a process group with the backend mscclpp, whose outputs are in registered memory.

    One object serves all modules of a group, so that they share buffers. Those of one size and stream are used in turn,
    and kept: as many as are in use at a time, usually two. Registering them is a call of all ranks, in the first step;
    later steps exchange nothing between hosts for memory. All ranks run the same modules in the same order.
    """

    def __init__(self, group: dist.ProcessGroup):
        self._group = group
        self._buffers: dict[tuple, list[_Buffer]] = {}

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The output of the next all-gather. Raises InvalidUsage if the group has another backend for the device."""
        backend = self._group._get_backend(device)
        if backend.name() != "mscclpp":
            raise InvalidUsage(
                f"the process group has the backend {backend.name()} for {device.type} tensors: make it with "
                'init_process_group("mscclpp"), or do not use this all-gather'
            )
        stream = None if device.type == "cpu" else torch.accelerator.current_stream(device).stream_id
        turns = self._buffers.setdefault((math.prod(size), dtype, device, stream), [])
        # The oldest one, or a new one: the same decision on all ranks, as they have the same tensors in use. If they
        # had not, the ranks without one would wait for the others until the timeout of the group.
        if turns and turns[0].is_free:
            buffer = turns.pop(0)
        else:
            buffer = _Buffer(backend.allocate_tensor(math.prod(size), dtype=dtype, device=device))
        turns.append(buffer)
        return buffer.lend(tuple(size))

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        # Another tensor of the same memory: for how long a call keeps its tensors differs from rank to rank, and must
        # not decide whether a buffer is in use.
        output = output_tensor.view(-1)
        return dist.all_gather_into_tensor(output, input_tensor, group=group, async_op=async_op)


def use(module: torch.nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Gives all FSDPModules in `module` one AllGather of the group over which they are sharded; None: the default one.

    Raises InvalidUsage if there are none.
    """
    sharded = [each for each in module.modules() if isinstance(each, FSDPModule)]
    if not sharded:
        raise InvalidUsage("the module has no FSDPModule: call torch.distributed.fsdp.fully_shard() first")
    all_gather = AllGather(group or dist.group.WORLD)
    for each in sharded:
        each.set_custom_all_gather(all_gather)
