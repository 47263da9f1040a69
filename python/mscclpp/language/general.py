"""Functions on the program that is being written."""

from __future__ import annotations

from .internal.globals import get_program


def JSON() -> str:
    """The plan of the program so far, in MSCCL++'s schema."""
    return get_program().to_json()


__all__ = ["JSON"]
