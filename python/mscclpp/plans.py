"""Plans that a program in MSCCL++'s language makes, proven before they run."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

from ._mscclpp import Plan, __version__, env  # type: ignore[attr-defined]  # not in the generated stub
from .errors import InvalidUsage
from .language import AlgoSpec, CollectiveProgram

Writer = Callable[..., CollectiveProgram]


def proven(plan: Plan) -> Plan:
    """The plan, proven to be right. Raises InvalidUsage with rank, block, operation and the line of the program.

    Relaxed signals and waits stay relaxed if the plan is right with them, and are ordered otherwise. Plans that were
    proven before are found in the folder `plans` of MSCCLPP_CACHE_DIR, by their whole content.
    """
    if _is_known(plan):
        return plan
    try:
        verified = plan.verified()
    except InvalidUsage:
        if not plan.has_relaxed_signals:
            raise
        ordered = plan.with_ordered_signals()
        verified = ordered if _is_known(ordered) else ordered.verified()
    _remember(verified)
    return verified


def make_plan(algo: Writer, algo_spec: AlgoSpec, **options: Any) -> Plan:
    """The proven plan of a program: algo(algo_spec, **options) writes it."""
    program = algo(algo_spec, **options)
    if not isinstance(program, CollectiveProgram):
        raise InvalidUsage(f"{algo_name(algo)} returned {program!r}: it returns the CollectiveProgram that it has written")
    if program.num_ranks != algo_spec.world_size:
        raise InvalidUsage(f"{algo_name(algo)} wrote a program for {program.num_ranks} ranks, of {algo_spec.world_size}")
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


class PacketType(enum.Enum):
    """The packets that a plan moves data in."""

    LL8 = 0
    LL16 = 1


def compile(algo, algo_spec, rank, **options):
    return make_plan(algo, algo_spec, **options)


class ExecutionPlan:
    pass


class Executor:
    pass
