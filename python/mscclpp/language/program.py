"""Programs: what all ranks of a collective do."""

from __future__ import annotations

from types import TracebackType

from .._mscclpp import Plan, ProgramRecorder, ReplicationPolicy
from .collectives import Collective
from .internal.globals import current_program
from .internal.origin import origin
from .utils import AlgoSpec


class CollectiveProgram:
    """A program, which is written inside of `with CollectiveProgram(...) as program:`.

    Ranks, buffers and channels that are made there belong to it, and their operations are appended to thread blocks of
    the ranks. AlgoSpec says what the arguments are. With `auto_sync`, the threads of a block wait for each other where
    the order of its accesses needs it; `instr_fusion` joins operations. Raises InvalidUsage, with the line of the
    program, for what cannot be.
    """

    def __init__(self, name: str, collective: Collective, num_ranks: int, instances: int = 1,
                 protocol: str = "Simple", instr_fusion: bool = True, auto_sync: bool = True,
                 replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved,
                 reuse_resources: bool = False, num_threads_per_block: int = 1024,
                 use_double_scratch_buffer: bool = False, buffer_alignment: int = 16, min_message_size: int = 0,
                 max_message_size: int = 2**64 - 1, in_place: bool = False) -> None:  # fmt: skip
        self.name = name
        self.collective = collective
        self.num_ranks = num_ranks
        self._recorder = ProgramRecorder(
            name, collective._bound(), num_ranks, in_place, instances, protocol, instr_fusion, auto_sync,
            replication_policy, reuse_resources, num_threads_per_block, use_double_scratch_buffer, buffer_alignment,
            min_message_size, max_message_size, origin(),
        )  # fmt: skip

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> CollectiveProgram:
        """The program of a specification."""
        return cls(
            spec.name, spec.collective, spec.world_size, spec.instances, spec.protocol, spec.instr_fusion,
            spec.auto_sync, spec.replication_policy, spec.reuse_resources, spec.num_threads_per_block,
            spec.use_double_scratch_buffer, spec.buffer_alignment, spec.min_message_size, spec.max_message_size,
            spec.in_place,
        )  # fmt: skip

    def __enter__(self) -> CollectiveProgram:
        current_program.enter(self)
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        current_program.leave()

    def compile(self) -> Plan:
        """The plan of what is written so far, which is not proven yet: Plan.verified()."""
        return self._recorder.compile()

    def to_json(self) -> str:
        """The plan in MSCCL++'s schema."""
        return self._recorder.to_json()
