"""MSCCL's language (MSCCLang) for plans: programs that move and reduce chunks of all ranks.

A program says where chunks go. Channels, thread blocks and synchronisation are the compiler's, unless the program names
them: `ch`, `sendtb`, `recvtb`, `instances` and chunks of several are its directives. docs/plans.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from .._mscclpp import ChunkProgram, ChunkProtocol, ChunkReference, CollectiveKind, Plan, ProgramCollective
from .._mscclpp import ThreadblockPolicy as ThreadblockPolicy
from ..errors import InvalidUsage
from . import collectives
from .collectives import AllGather, AllReduce, AllToAll, Collective, ReduceScatter
from .internal.globals import CurrentProgram
from .internal.origin import origin


class Buffer:
    """Names of the caller's buffers. All other names are scratch of a rank, made by their first use."""

    input = "input"
    output = "output"
    scratch = "scratch"


class CustomCollective(Collective):
    """A collective of the user: derive from it and write expected().

    Buffers have input_chunks and output_chunks, by default `chunk_factor`.
    """

    def __init__(self, num_ranks: int, chunk_factor: int = 1, inplace: bool = False, *, input_chunks: int | None = None,
                 output_chunks: int | None = None) -> None:  # fmt: skip
        super().__init__(num_ranks, chunk_factor, inplace)
        self.input_chunks = chunk_factor if input_chunks is None else input_chunks
        self.output_chunks = chunk_factor if output_chunks is None else output_chunks

    def expected(self) -> Mapping[tuple[int, int], Sequence[tuple[int, int]]]:
        """For (rank, output chunk) the input chunks, as (rank, chunk), whose sum it is to hold."""
        raise NotImplementedError

    def _bound(self) -> ProgramCollective:
        return ProgramCollective(CollectiveKind.custom, self.num_ranks, in_place=self.inplace,
                                 input_chunks=self.input_chunks, output_chunks=self.output_chunks)  # fmt: skip


class _Rooted(Collective):
    def __init__(self, num_ranks: int, chunk_factor: int = 1, inplace: bool = False, root: int = 0) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.root = root

    def _bound(self) -> ProgramCollective:
        return ProgramCollective(self.kind, self.num_ranks, self.chunk_factor, self.inplace, self.root)


class Broadcast(_Rooted):
    """Every rank gets the input of the root."""

    kind = CollectiveKind.broadcast


class Reduce(_Rooted):
    """The root gets the reduction of all inputs."""

    kind = CollectiveKind.reduce


class Topology:
    """Which ranks are linked: `links[dst][src]` is not 0 if src can send to dst."""

    def __init__(self, name: str, links: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.links = links

    def num_nodes(self) -> int:
        """How many ranks it has."""
        return len(self.links)

    def link(self, src: int, dst: int) -> int:
        """0 if src cannot send to dst."""
        return self.links[dst][src]


def fully_connected(num_nodes: int) -> Topology:
    """All ranks are linked to each other."""
    return Topology("FullyConnected", [[int(src != dst) for src in range(num_nodes)] for dst in range(num_nodes)])


class MSCCLProgram:
    """A program, which is written inside of `with MSCCLProgram(...) as program:`.

    instances: the program is made that many times, each for a share of the data, chunk by chunk with
    interleaved_replication and in contiguous pieces without. protocol: "Simple", or "LL" or "LL128" for packets.
    ranks_per_node: messages between nodes go through port channels; 0: there is one node. Other arguments of MSCCL are
    accepted: check_xml and dependence_nop, since plans are always proven, and have device semaphores in place of steps
    that only depend.
    """

    def __init__(self, name: str, topo: Topology | None, collective: Collective, instances: int,
                 protocol: str = "Simple", threadblock_policy: ThreadblockPolicy = ThreadblockPolicy.auto,
                 interleaved_replication: bool = True, instr_fusion: bool = True, check_xml: bool = True,
                 dependence_nop: bool = False, *, ranks_per_node: int = 0,
                 num_threads_per_block: int = 512) -> None:  # fmt: skip
        if topo is not None and topo.num_nodes() != collective.num_ranks:
            raise InvalidUsage(
                f"{origin()}: the topology has {topo.num_nodes()} ranks, the collective {collective.num_ranks}"
            )
        protocols = {kind.name: kind for kind in ChunkProtocol}
        if protocol not in protocols:
            raise InvalidUsage(f'{origin()}: protocol is "{protocol}"; it is one of {", ".join(protocols)}')
        self.name = name
        self.topo = topo
        self.collective = collective
        self.num_ranks = collective.num_ranks
        self.instances = instances
        self.protocol = protocol
        self._program = ChunkProgram(name, collective._bound(), instances, protocols[protocol], threadblock_policy,
                                     interleaved_replication, instr_fusion, ranks_per_node, num_threads_per_block,
                                     origin())  # fmt: skip
        if isinstance(collective, CustomCollective):
            for (rank, index), contributions in collective.expected().items():
                self._program.expect(rank, index, list(contributions), origin())

    def __enter__(self) -> MSCCLProgram:
        _current.enter(self)
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        _current.leave()

    def compile(self) -> Plan:
        """The plan of what is written so far, which is not proven yet: Plan.verified()."""
        return self._program.compile()

    def check(self) -> bool:
        """True. Raises InvalidUsage, with rank, block, operation and line, unless the plan is proven to be right."""
        self._program.check()
        return True

    def generate_xml(self) -> str:
        """The instructions in the XML of MSCCL's runtime."""
        return self._program.to_xml()


_current: CurrentProgram[MSCCLProgram] = CurrentProgram("MSCCLProgram")


class Ref:
    """Some chunks of a buffer of a rank, as they are at this point of the program.

    It is stale, and its use an error, once the program has overwritten them.
    """

    def __init__(self, program: MSCCLProgram, reference: ChunkReference) -> None:
        self._program = program
        self._reference = reference
        self.rank = reference.rank
        self.buffer = reference.buffer
        self.index = reference.index
        self.size = reference.size

    def __repr__(self) -> str:
        return f"<Ref: rank {self.rank}, {self.buffer}[{self.index}:{self.index + self.size}]>"

    def copy(self, dst: int, buffer: str | None = None, index: int = -1, sendtb: int = -1, recvtb: int = -1,
             ch: int = -1) -> Ref:  # fmt: skip
        """Copies the chunks to rank dst, and returns them there.

        By default to the same buffer and index; in a scratch buffer that is named, by default behind what is there.
        """
        self._require_link(self.rank, dst)
        return Ref(self._program, self._reference.copy(dst, buffer or "", index, sendtb, recvtb, ch, origin()))

    def reduce(self, other: Ref, sendtb: int = -1, recvtb: int = -1, ch: int = -1) -> Ref:
        """Adds other to these chunks, and returns them."""
        _require_ref(other)
        self._require_link(other.rank, self.rank)
        return Ref(self._program, self._reference.reduce(other._reference, sendtb, recvtb, ch, origin()))

    def split(self, num: int) -> list[Ref]:
        """`num` references to an equal number of chunks each."""
        return [Ref(self._program, part) for part in self._reference.split(num, origin())]

    def group(self, other: Ref) -> Ref:
        """One reference to these chunks and those of `other`, which are beside them."""
        _require_ref(other)
        return Ref(self._program, self._reference.group(other._reference, origin()))

    def _require_link(self, src: int, dst: int) -> None:
        topo = self._program.topo
        inside = topo is not None and 0 <= dst < topo.num_nodes()
        if topo is not None and inside and src != dst and not topo.link(src, dst):
            raise InvalidUsage(f"{origin()}: the topology {topo.name} has no link from rank {src} to rank {dst}")


def _require_ref(other: object) -> None:
    if not isinstance(other, Ref):
        raise InvalidUsage(f"{origin()}: {other!r} is no reference to chunks: chunk() of what holds nothing is None")


def chunk(rank: int, buffer: str, index: int, size: int = 1) -> Ref | None:
    """Chunks [index, index + size) of a buffer; None if one of them holds nothing yet."""
    program = _current.get()
    bound, at = program._program, origin()
    if not bound.holds(rank, buffer, index, size, at):
        return None
    return Ref(program, bound.chunk(rank, buffer, index, size, at))


def Check() -> bool:
    """True. Raises InvalidUsage unless the program so far is proven to be right."""
    return _current.get().check()


def XML() -> None:
    """Prints the program in the XML of MSCCL's runtime."""
    print(_current.get().generate_xml())


__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Broadcast",
    "Buffer",
    "Check",
    "chunk",
    "Collective",
    "collectives",
    "CustomCollective",
    "fully_connected",
    "MSCCLProgram",
    "Reduce",
    "ReduceScatter",
    "Ref",
    "ThreadblockPolicy",
    "Topology",
    "XML",
]
