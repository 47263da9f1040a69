"""What programs compute. Buffers are divided into chunks; a rank's part of a collective has `chunk_factor` of them."""

from __future__ import annotations

from .._mscclpp import CollectiveKind, ProgramCollective


class Collective:
    """Base class. An all-reduce has num_ranks * chunk_factor chunks of input and output."""

    kind = CollectiveKind.custom

    def __init__(self, num_ranks: int, chunk_factor: int = 1, inplace: bool = False) -> None:
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace

    @property
    def name(self) -> str:
        """As the algorithms of the package name it."""
        return str(self.kind.name)

    def _bound(self) -> ProgramCollective:
        return ProgramCollective(self.kind, self.num_ranks, self.chunk_factor, self.inplace)


class AllReduce(Collective):
    """Every rank gets the reduction of all inputs."""

    kind = CollectiveKind.allreduce


class AllGather(Collective):
    """Every rank gets the inputs of all ranks, in rank order."""

    kind = CollectiveKind.allgather


class ReduceScatter(Collective):
    """Every rank gets its part of the reduction of all inputs."""

    kind = CollectiveKind.reducescatter


class AllToAll(Collective):
    """Every rank gets the parts of all ranks' inputs that are for it."""

    kind = CollectiveKind.alltoall


class SendRecv(Collective):
    """Every rank gets the input of the rank before."""

    kind = CollectiveKind.sendrecv


class TestCollective(Collective):
    """A collective whose result is not known: of its programs the order is proven, not the result."""

    __test__ = False  # pytest takes it for a class of tests

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks)
        self.input_size = input_size
        self.output_size = output_size

    def _bound(self) -> ProgramCollective:
        return ProgramCollective(self.kind, self.num_ranks, input_chunks=self.input_size,
                                 output_chunks=self.output_size)  # fmt: skip
