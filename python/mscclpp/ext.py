"""MSCCL++'s other name for the builder of collections."""

from ._mscclpp import AlgorithmCollectionBuilder

__all__ = ["AlgorithmCollectionBuilder"]
