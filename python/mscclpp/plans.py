"""Plans: those of the library, and algorithms of programs in MSCCL++'s language and in MSCCL's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._mscclpp import (
    Algorithm,
    ChunkProtocol,
    DeviceType,
    ExecutionPlan,
    LibraryPlan,
    Plan,
    library_plans,
    make_dsl_algorithm,
    make_library_plan,
)
from .errors import InvalidUsage
from .language import AlgoSpec, CollectiveProgram


def compile(algo: Callable[..., CollectiveProgram], algo_spec: AlgoSpec, rank: int, *,
            device_type: DeviceType = DeviceType.GPU, **options: Any) -> Algorithm:  # fmt: skip
    """The algorithm of a program in MSCCL++'s language: algo(algo_spec, **options) writes it, for all ranks.

    All ranks compile the same program. It is compiled and proven anew by each call, so that no earlier one is found in
    its place. Raises InvalidUsage for a program that is wrong, with rank, block, operation and line.
    device_type: where Algorithm.execute() runs if it gets no Executor.
    """
    name = getattr(algo, "__name__", repr(algo))
    program = algo(algo_spec, **options)
    if not isinstance(program, CollectiveProgram):
        raise InvalidUsage(f"{name} returned {program!r}: return the CollectiveProgram that it has written")
    if program.num_ranks != algo_spec.world_size:
        raise InvalidUsage(f"{name} wrote a program for {program.num_ranks} ranks, not {algo_spec.world_size}")
    return make_algorithm(program.compile(), rank, name=algo_spec.name, tags=algo_spec.tags,
                          nranks_per_node=algo_spec.nranks_per_node, device_type=device_type)  # fmt: skip


def make_algorithm(plan: Plan, rank: int, *, name: str | None = None, tags: Mapping[str, int] | None = None,
                   nranks_per_node: int = 0, device_type: DeviceType = DeviceType.GPU) -> Algorithm:  # fmt: skip
    """A plan as an algorithm, which a collection can hold; of a program of msccl, or of a file.

    name: by default the plan's. nranks_per_node: the number of ranks on each host that it is made for; 0: any.
    Raises InvalidUsage for a plan that is wrong.
    """
    constraint = Algorithm.Constraint(plan.ranks, nranks_per_node)
    return make_dsl_algorithm(name or plan.name, ExecutionPlan(plan, rank), dict(tags or {}), constraint, device_type)


def library() -> list[LibraryPlan]:
    """The plans of the library, with name, description and collective. Each can be made for any ranks that suit it."""
    return library_plans()


def make(name: str, ranks: int, *, ranks_per_node: int = 0, instances: int = 1,
         protocol: str = "Simple", in_place: bool = False) -> Plan:  # fmt: skip
    """The plan of the library of that name, proven to be right.

    ranks_per_node: the ranks of each node, where messages between nodes go through ports; 0: there is one node.
    instances: so many copies of the program, at most 128, share the data, with blocks of their own. protocol:
    "Simple", data and signals; "LL" or "LL128", packets, of a kind that the executor chooses. in_place: for calls whose
    input and output are one buffer. Raises InvalidUsage if there is none of the name, or if it cannot be made with
    these arguments: LibraryPlan.refuses() says why.
    """
    protocols = {kind.name: kind for kind in ChunkProtocol}
    if protocol not in protocols:
        raise InvalidUsage(f'protocol is "{protocol}"; it is one of {", ".join(protocols)}')
    return make_library_plan(name, ranks, ranks_per_node, instances, protocols[protocol], in_place)
