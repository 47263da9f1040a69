"""The names of execution plans, which this release does not run."""

import enum

from .errors import InvalidUsage


class PacketType(enum.Enum):
    """The packets that a plan moves data in."""

    LL8 = 0
    LL16 = 1


def _refuse(what):
    raise InvalidUsage(
        f"{what}: execution plans are not part of this release. Use the library's algorithms "
        "(AlgorithmCollectionBuilder().build_default_algorithms), or compile a kernel of your own (compile_native)"
    )


def compile(algo, algo_spec=None, rank=None, **options):
    """Would make an Algorithm of a program in MSCCL++'s language. Raises InvalidUsage: there are no plans yet."""
    _refuse("compile()")


class ExecutionPlan:
    """A plan in a file, as seen by a rank. Raises InvalidUsage: there are no plans yet."""

    def __init__(self, path, rank):
        _refuse("ExecutionPlan()")


class Executor:
    """What runs plans on a communicator. Raises InvalidUsage: there are no plans yet."""

    def __init__(self, communicator):
        _refuse("Executor()")

    def execute(self, rank, send_buff, recv_buff, send_buff_size, recv_buff_size, data_type, plan, stream,
                packet_type=PacketType.LL16):  # fmt: skip
        """Would enqueue a plan on a stream. Buffers are addresses, sizes are bytes."""
        _refuse("Executor.execute()")

    def reset(self):
        """Would release what execute() keeps between calls."""
        _refuse("Executor.reset()")
