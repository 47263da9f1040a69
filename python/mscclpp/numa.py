"""The CPUs near a GPU, and binding a thread to them."""

from ._mscclpp import get_device_numa_node, numa_bind

__all__ = ["get_device_numa_node", "numa_bind"]
