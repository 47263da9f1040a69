"""What a program is for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._mscclpp import ReplicationPolicy

if TYPE_CHECKING:
    from .collectives import Collective


@dataclasses.dataclass
class AlgoSpec:
    """The algorithm that mscclpp.compile() makes: a function gets it, and writes a program for it.

    Message sizes are in bytes. `instances` copies of the program share the data, each with thread blocks of its own.
    `tags` are what the algorithm says about itself, for selectors.
    """

    name: str
    collective: Collective
    nranks_per_node: int
    world_size: int
    in_place: bool = False
    instances: int = 1
    protocol: str = "Simple"
    instr_fusion: bool = True
    auto_sync: bool = True
    replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved
    reuse_resources: bool = False
    num_threads_per_block: int = 1024
    use_double_scratch_buffer: bool = False
    buffer_alignment: int = 16
    min_message_size: int = 0
    max_message_size: int = 2**64 - 1
    tags: Mapping[str, int] = dataclasses.field(default_factory=dict)


__all__ = ["AlgoSpec", "ReplicationPolicy"]
