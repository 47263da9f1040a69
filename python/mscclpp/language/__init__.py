"""MSCCL++'s language for plans: programs of ranks, channels and thread blocks. docs/plans.md."""

from . import channel, collectives, general, loop, msccl, program, rank, thread_block_group, utils
from .channel import MemoryChannel, PortChannel, SwitchChannel
from .collectives import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv, TestCollective
from .general import JSON
from .internal.types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType
from .loop import LoopIterationContext
from .program import CollectiveProgram
from .rank import BaseBuffer, Buffer, Rank, Semaphore
from .thread_block_group import ThreadBlockGroup
from .utils import AlgoSpec, ReplicationPolicy

__all__ = [
    "AlgoSpec",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BaseBuffer",
    "Buffer",
    "BufferType",
    "channel",
    "ChannelType",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "collectives",
    "general",
    "JSON",
    "loop",
    "LoopIterationContext",
    "MemoryChannel",
    "msccl",
    "PortChannel",
    "program",
    "Rank",
    "rank",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SyncType",
    "TestCollective",
    "thread_block_group",
    "ThreadBlockGroup",
    "utils",
]
