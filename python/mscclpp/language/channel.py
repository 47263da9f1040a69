"""Channels between ranks. All operations are one-sided; signals and waits order them."""

from __future__ import annotations

from collections.abc import Sequence

from .._mscclpp import (
    BufferType,
    Chunk,
    ProgramMemoryChannel,
    ProgramPortChannel,
    ProgramSwitchChannel,
    ProgramSwitchChannelAtRank,
    SyncType,
)
from .internal.globals import get_program
from .internal.origin import origin
from .internal.types import ChannelType, ReduceOperationType, require_sum
from .thread_block_group import ThreadBlockGroup, blocks_of


class _Channel:
    """What channels of one peer have. The n-th from a to b and the n-th from b to a are one connection."""

    channel_type = ChannelType.none

    def __init__(self, channel: ProgramMemoryChannel | ProgramPortChannel, dst_rank: int, src_rank: int) -> None:
        self._channel = channel
        self.dst_rank = dst_rank
        self.src_rank = src_rank

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Adds one to the counter of the destination: what the block wrote before is visible to who waits for it.

        relaxed: nothing depends on the order of the data. mscclpp.compile() orders it nevertheless, if the program is
        right only so.
        """
        self._channel.signal(tb, data_sync, relaxed, origin())

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Waits for one more signal of the destination rank."""
        self._channel.wait(tb, data_sync, relaxed, origin())

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
            tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Writes chunks of the source rank to chunks of the destination rank."""
        self._channel.put(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                    tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """The same as packets. A port channel moves packets as they lie in scratch of the source rank."""
        self._channel.put_packets(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def read_put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                         tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Waits for packets in scratch of the source rank, and writes them to the destination rank as packets."""
        self._channel.read_put_packets(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())


class MemoryChannel(_Channel):
    """Loads and stores of src_rank in the memory of dst_rank."""

    channel_type = ChannelType.memory
    _channel: ProgramMemoryChannel

    def __init__(self, dst_rank: int, src_rank: int) -> None:
        channel = ProgramMemoryChannel(get_program()._recorder, dst_rank, src_rank, origin())
        super().__init__(channel, dst_rank, src_rank)

    def get(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
            tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Reads chunks of the destination rank into chunks of the source rank."""
        self._channel.get(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def reduce(self, local_src_chunk: Chunk, remote_src_chunks: Sequence[Chunk], tb: int | None = None,
               tb_group: ThreadBlockGroup | None = None, local_dst_chunk: Chunk | None = None,
               reduce_op: ReduceOperationType = ReduceOperationType.sum) -> None:  # fmt: skip
        """Writes the reduction of a chunk and of chunks of the destination rank to local_dst_chunk.

        By default to local_src_chunk.
        """
        require_sum(reduce_op)
        self._channel.reduce(local_src_chunk, list(remote_src_chunks), blocks_of(tb, tb_group), local_dst_chunk,
                             origin())  # fmt: skip


class PortChannel(_Channel):
    """Writes of src_rank to the memory of dst_rank, by a proxy, between hosts too."""

    channel_type = ChannelType.port
    _channel: ProgramPortChannel

    def __init__(self, dst_rank: int, src_rank: int) -> None:
        channel = ProgramPortChannel(get_program()._recorder, dst_rank, src_rank, origin())
        super().__init__(channel, dst_rank, src_rank)

    def flush(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits until the writes before are complete, and their sources may be overwritten."""
        self._channel.flush(tb, data_sync, origin())

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                        tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """put() and signal()."""
        self._channel.put_with_signal(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())

    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None,
                                  tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """put(), signal() and flush()."""
        self._channel.put_with_signal_and_flush(dst_chunk, src_chunk, blocks_of(tb, tb_group), origin())


class SwitchChannelAtRank:
    """What one rank does with a switch channel."""

    def __init__(self, channel: ProgramSwitchChannelAtRank) -> None:
        self._channel = channel

    def reduce(self, buffer_offset: int, size: int, dst_chunk: Chunk, tb: int | None = None,
               tb_group: ThreadBlockGroup | None = None,
               reduce_op: ReduceOperationType = ReduceOperationType.sum) -> None:  # fmt: skip
        """Writes the reduction of chunks [buffer_offset, buffer_offset + size) of all ranks to dst_chunk."""
        require_sum(reduce_op)
        self._channel.reduce(buffer_offset, size, dst_chunk, blocks_of(tb, tb_group), origin())

    def broadcast(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int | None = None,
                  tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """Writes src_chunk to chunks [buffer_offset, buffer_offset + size) of all ranks."""
        self._channel.broadcast(src_chunk, buffer_offset, size, blocks_of(tb, tb_group), origin())

    def broadcast_packets(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int | None = None,
                          tb_group: ThreadBlockGroup | None = None) -> None:  # fmt: skip
        """The same as packets, in scratch."""
        self._channel.broadcast_packets(src_chunk, buffer_offset, size, blocks_of(tb, tb_group), origin())


class SwitchChannel:
    """The same buffer of several ranks, through a switch that reduces and multicasts."""

    channel_type = ChannelType.switch

    def __init__(self, rank_list: Sequence[int], buffer_type: BufferType) -> None:
        self.rank_list = list(rank_list)
        self.buffer_type = buffer_type
        self._channel = ProgramSwitchChannel(get_program()._recorder, self.rank_list, buffer_type, origin())

    def at_rank(self, rank: int) -> SwitchChannelAtRank:
        """The channel as one of its ranks uses it."""
        return SwitchChannelAtRank(self._channel.at_rank(rank, origin()))


__all__ = [
    "BufferType",
    "ChannelType",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "SwitchChannel",
    "SyncType",
]
