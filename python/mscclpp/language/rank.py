"""Ranks, their buffers and semaphores."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from .._mscclpp import BufferType, Chunk, ProgramBuffer, ProgramRank, ProgramSemaphore, SyncType
from ..errors import InvalidUsage
from .internal.globals import get_program
from .internal.origin import origin
from .internal.types import ReduceOperationType, require_sum
from .thread_block_group import ThreadBlockGroup, blocks_of


class BaseBuffer:
    """A buffer of a rank. `buffer[begin:end]` and `buffer[index]` are chunks of it."""

    def __init__(self, buffer: ProgramBuffer) -> None:
        self._buffer = buffer
        self.rank: int = buffer.rank
        self.size: int = buffer.size
        self.type: BufferType = buffer.type

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: slice | int) -> Chunk:
        if not isinstance(key, slice):
            index = operator.index(key)
            return self._buffer.slice(index, index + 1, origin())
        if key.step not in (None, 1):
            raise InvalidUsage(f"{origin()}: chunks lie side by side: a slice has no step")
        begin = 0 if key.start is None else key.start
        end = self.size if key.stop is None else key.stop
        return self._buffer.slice(begin, end, origin())


class Buffer(BaseBuffer):
    """Scratch of a rank, of `size` chunks."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(ProgramBuffer(get_program()._recorder, rank, size, origin()))


class Rank:
    """A rank, and what it does with its own memory.

    Operations are done by a thread block (tb), or by several that share the bytes (tb_group).
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._rank = ProgramRank(get_program()._recorder, rank, origin())

    def get_input_buffer(self) -> BaseBuffer:
        """What the caller passes as its input."""
        return BaseBuffer(self._rank.get_input_buffer())

    def get_output_buffer(self) -> BaseBuffer:
        """What the caller passes as its output; in place it is the input."""
        return BaseBuffer(self._rank.get_output_buffer())

    def copy(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
             tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Copies chunks of this rank."""
        self._rank.copy(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def copy_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                     tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Copies chunks into packets, in scratch."""
        self._rank.copy_packets(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def unpack_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                       tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Waits for packets, and copies their data out."""
        self._rank.unpack_packets(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def reduce(self, src_chunk: Chunk, other_chunks: Sequence[Chunk], tb: int | None = None,
               tb_group: ThreadBlockGroup | None = None, dst_chunk: Chunk | None = None,
               reduce_op: ReduceOperationType = ReduceOperationType.sum, packet: bool = False) -> None:  # fmt: skip
        """Writes the reduction of src_chunk and other_chunks to dst_chunk, by default to src_chunk.

        packet: the others are packets, which it waits for.
        """
        require_sum(reduce_op)
        self._rank.reduce(src_chunk, list(other_chunks), blocks_of(tb, tb_group), dst_chunk, packet, origin())

    def barrier(self, tb_list: Sequence[int]) -> None:
        """These thread blocks wait for each other."""
        self._rank.barrier(list(tb_list), origin())


class Semaphore:
    """A counter between the thread blocks of a rank."""

    def __init__(self, rank: int, initial_value: int = 0) -> None:
        self._semaphore = ProgramSemaphore(get_program()._recorder, rank, initial_value, origin())

    def acquire(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits until the counter is positive, and subtracts one."""
        self._semaphore.acquire(tb, data_sync, origin())

    def release(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Adds one."""
        self._semaphore.release(tb, data_sync, origin())


__all__ = ["BaseBuffer", "Buffer", "Rank", "Semaphore"]
