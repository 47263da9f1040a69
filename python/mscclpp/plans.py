"""Plans that a program in MSCCL++'s language makes, proven before they run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

from ._mscclpp import Algorithm, Plan, PlanOfRank, env, make_dsl_algorithm
from ._mscclpp import __version__ as __version__  # type: ignore[attr-defined]  # not in the generated stub
from .errors import InvalidUsage
from .language import AlgoSpec, CollectiveProgram

Writer = Callable[..., CollectiveProgram]


def proven(plan: Plan) -> Plan:
    """The plan, proven to be right. Raises InvalidUsage with rank, block, operation and the line of the program.

    Plans that were proven before are found in the folder `plans` of MSCCLPP_CACHE_DIR, by their whole content.
    """
    if not _is_known(plan):
        plan = plan.verified()
        _remember(plan)
    return plan


def make_plan(algo: Writer, algo_spec: AlgoSpec, **options: Any) -> Plan:
    """The proven plan of a program: algo(algo_spec, **options) writes it."""
    program = algo(algo_spec, **options)
    if not isinstance(program, CollectiveProgram):
        raise InvalidUsage(f"{algo_name(algo)} returned {program!r}: return the CollectiveProgram that it has written")
    if program.num_ranks != algo_spec.world_size:
        raise InvalidUsage(
            f"{algo_name(algo)} wrote a program for {program.num_ranks} ranks, not {algo_spec.world_size}"
        )
    plan = program.compile()
    # Multicast is not used: the same loads and stores, peer by peer.
    return proven(plan.without_switches() if plan.has_switches else plan)


def algo_name(algo: Any) -> str:
    """For messages."""
    return getattr(algo, "__name__", repr(algo))


def _folder() -> pathlib.Path:
    return pathlib.Path(env().cache_dir) / "plans"


def _entry(plan: Plan) -> pathlib.Path:
    key = hashlib.blake2b(f"{__version__}\n{plan.to_json()}".encode(), digest_size=16).hexdigest()
    return _folder() / f"{key}.json"


def _is_known(plan: Plan) -> bool:
    try:
        return _entry(plan).read_text() == plan.to_json()
    except OSError:
        return False


def _remember(plan: Plan) -> None:
    # Without it the proof is only made again.
    with contextlib.suppress(OSError):
        entry = _entry(plan)
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = entry.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(plan.to_json())
        temporary.replace(entry)


def compile(algo: Writer, algo_spec: AlgoSpec, rank: int, **options: Any) -> Algorithm:
    """The algorithm of a program in MSCCL++'s language: algo(algo_spec, **options) writes it for all ranks.

    All ranks compile the same program. Algorithm.execute() needs an Executor. Raises InvalidUsage for a program that is
    wrong, with rank, block, operation and line.
    """
    plan = PlanOfRank(make_plan(algo, algo_spec, **options), rank)
    return make_dsl_algorithm(algo_spec.name, plan, dict(algo_spec.tags), algo_spec.world_size,
                              algo_spec.nranks_per_node)  # fmt: skip


class ExecutionPlan(PlanOfRank):
    """A plan in a file of MSCCL++'s schema, proven, as a rank executes it.

    Raises OSError if the file cannot be read, and InvalidUsage if it holds no plan, or a wrong one.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int) -> None:
        plan = Plan.from_json(pathlib.Path(path).read_text())
        super().__init__(proven(plan.without_switches() if plan.has_switches else plan), rank)
