"""The collectives on arrays: shapes, types and devices are checked, then the compiled ones run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ._mscclpp import Bootstrap, CollectiveCall, Collectives, CollectiveType, DeviceType, ReduceOp
from .arrays import CPU, UNKNOWN_DEVICE, Array, empty_like, parts_of, require_writable, stream_of, view, view_output
from .dtypes import Reduction, to_reduce_op
from .errors import InvalidUsage
from .pending_calls import Message, PendingCalls

# Looking up a member of an enumeration takes as long as reading a tensor's address.
_ALL_REDUCE, _ALL_GATHER = CollectiveType.all_reduce, CollectiveType.all_gather
_REDUCE_SCATTER, _ALL_TO_ALL = CollectiveType.reduce_scatter, CollectiveType.all_to_all
_BROADCAST, _REDUCE = CollectiveType.broadcast, CollectiveType.reduce
_GATHER, _SCATTER, _SUM = CollectiveType.gather, CollectiveType.scatter, ReduceOp.SUM

Operator = str | ReduceOp | Reduction


class ArrayCollectives:
    """The collectives of a CommGroup.

    Every rank calls them, in the same order, with arrays of the same type; a send and its recv are called by the two
    ranks concerned. Arrays are contiguous: torch tensors, numpy arrays on CPU ranks, or anything with `__dlpack__` or
    `__cuda_array_interface__`. A result goes to `out`, which is returned; without `out` it is a new array, and with
    `out` the same as the input, the collective works in place (all_to_all and all_to_all_v do not). Where ranks
    contribute parts, these follow one another along the first dimension, in rank order.

    op: "sum", "prod", "max", "min" or "avg", a ReduceOp, or pre_mul_sum(factor). On GPUs a call is enqueued on
    `stream`: by default the current one of torch or cupy, else the default stream. On CPU ranks it returns when it is
    done. `algorithm`: a name of docs/collectives.md; by default chosen by size.

    Calls raise InvalidUsage for arrays that do not fit, RemoteError if another rank has failed, and Timeout.
    """

    my_rank: int
    nranks: int
    bootstrap: Bootstrap
    _collectives: dict[DeviceType, Collectives]
    _group: dict[DeviceType, PendingCalls] | None = None  # while a group collects calls

    def collectives(self, device_type: DeviceType) -> Collectives:
        raise NotImplementedError

    def _require_open(self) -> None:
        raise NotImplementedError

    def all_reduce(self, tensor: Any, op: Operator = "sum", out: Any = None, stream: Any = None,
                   algorithm: str | None = None) -> Any:  # fmt: skip
        """Reduces over all ranks; all get the same bits. `out` has the shape of `tensor`."""
        source = view(tensor)
        target = self._target(out, source, source.shape)
        return self._run(_ALL_REDUCE, source, target, source.size, stream, algorithm, op)

    def all_gather(self, tensor: Any, out: Any = None, stream: Any = None, algorithm: str | None = None) -> Any:
        """Every rank gets the tensors of all: shape (d, ...) gives (ranks * d, ...)."""
        source = view(tensor)
        target = self._target(out, source, self._gathered(source))
        return self._run(_ALL_GATHER, source, target, source.size, stream, algorithm)

    def reduce_scatter(self, tensor: Any, op: Operator = "sum", out: Any = None, stream: Any = None,
                       algorithm: str | None = None) -> Any:  # fmt: skip
        """Reduces over all ranks, and rank r gets part r: shape (ranks * d, ...) gives (d, ...)."""
        source = view(tensor)
        target = self._target(out, source, self._part(source))
        return self._run(_REDUCE_SCATTER, source, target, target.size, stream, algorithm, op)

    def all_to_all(self, tensor: Any, out: Any = None, stream: Any = None, algorithm: str | None = None) -> Any:
        """Part r of the tensor goes to rank r, into the part of its result for this rank: (ranks * d, ...)."""
        source = view(tensor)
        self._part(source)
        target = self._target(out, source, source.shape)
        return self._run(_ALL_TO_ALL, source, target, source.size // self.nranks, stream, algorithm)

    def broadcast(self, tensor: Any, root: int = 0, out: Any = None, stream: Any = None,
                  algorithm: str | None = None) -> Any:  # fmt: skip
        """Every rank gets the tensor of `root`; what the others pass gives the shape and type."""
        source = view(tensor)
        target = self._target(out, source, source.shape)
        return self._run(_BROADCAST, source, target, source.size, stream, algorithm, root=root)

    def reduce(self, tensor: Any, root: int = 0, op: Operator = "sum", out: Any = None, stream: Any = None,
               algorithm: str | None = None) -> Any:  # fmt: skip
        """Reduces over all ranks to `root`, which gets the result; the others get None."""
        source = view(tensor)
        target = self._target(out, source, source.shape) if self.my_rank == root else None
        return self._run(_REDUCE, source, target, source.size, stream, algorithm, op, root)

    def gather(self, tensor: Any, root: int = 0, out: Any = None, stream: Any = None,
               algorithm: str | None = None) -> Any:  # fmt: skip
        """`root` gets the tensors of all ranks, of shape (ranks * d, ...); the others get None."""
        source = view(tensor)
        target = self._target(out, source, self._gathered(source)) if self.my_rank == root else None
        return self._run(_GATHER, source, target, source.size, stream, algorithm, root=root)

    def scatter(self, tensor: Any, root: int = 0, out: Any = None, stream: Any = None,
                algorithm: str | None = None) -> Any:  # fmt: skip
        """Rank r gets part r of the tensor of `root`: (ranks * d, ...) gives (d, ...). Others pass None and `out`."""
        source = None
        if self.my_rank == root:
            source = view(tensor)
            target = self._target(out, source, self._part(source))
        elif out is None:
            raise InvalidUsage("scatter: a rank that is not the root passes out=, which gives the shape and type")
        else:
            target = view_output(out)
        return self._run(_SCATTER, source, target, target.size, stream, algorithm, root=root)

    def all_gather_v(self, tensor: Any, counts: Sequence[int], out: Any = None, stream: Any = None) -> Any:
        """all_gather with parts of different length: shape (counts[rank], ...) gives (sum(counts), ...).

        counts: the first dimension of each rank's tensor, the same list on all ranks.
        """
        source = view(tensor)
        self._require_counts(source, [self._counts(counts)[self.my_rank]], "counts[rank] is")
        target = self._target(out, source, (sum(counts), *source.shape[1:]))
        sends = [(source.address, source.nbytes, rank) for rank in range(self.nranks)]
        return self._exchange_parts(source, sends, target, parts_of(target, counts), stream)

    def reduce_scatter_v(self, tensor: Any, counts: Sequence[int], op: Operator = "sum", out: Any = None,
                         stream: Any = None, algorithm: str | None = None) -> Any:  # fmt: skip
        """reduce_scatter with parts of different length: shape (sum(counts), ...) gives (counts[rank], ...).

        counts: the first dimension of each rank's result, the same list on all ranks.
        """
        source = view(tensor)
        self._require_counts(source, self._counts(counts), "the counts are")
        target = self._target(out, source, (counts[self.my_rank], *source.shape[1:]))
        entry = math.prod(source.shape[1:])
        elements = [count * entry for count in counts]
        offsets = [sum(elements[:rank]) for rank in range(self.nranks)]
        return self._run(CollectiveType.reduce_scatter_v, source, target, 0, stream, algorithm, op, counts=elements,
                         offsets=offsets)  # fmt: skip

    def all_to_all_v(self, tensor: Any, send_counts: Sequence[int], receive_counts: Sequence[int], out: Any = None,
                     stream: Any = None) -> Any:  # fmt: skip
        """all_to_all with parts of different length: (sum(send_counts), ...) gives (sum(receive_counts), ...).

        send_counts[r], receive_counts[r]: the first dimension of the parts for and from rank r; what a rank sends to
        another is what that one receives from it.
        """
        source = view(tensor)
        self._require_counts(source, self._counts(send_counts), "send_counts are")
        target = self._target(out, source, (sum(self._counts(receive_counts)), *source.shape[1:]))
        sends, receives = parts_of(source, send_counts), parts_of(target, receive_counts)
        return self._exchange_parts(source, sends, target, receives, stream)

    def send(self, tensor: Any, peer: int, tag: int | None = None, stream: Any = None) -> None:
        """Sends a tensor to rank `peer`, which calls recv. Two ranks that send to each other use send_recv or group.

        With `tag`, which the peer passes too, an array of the host goes through the bootstrap, and the call does not
        wait for the peer.
        """
        if tag is None:
            self._send_recv(view(tensor), peer, None, -1, stream)
        else:
            self._require_open()
            array = _on_host(view(tensor))
            self.bootstrap.send(array.address, array.nbytes, peer, tag)

    def recv(self, out: Any, peer: int, tag: int | None = None, stream: Any = None) -> Any:
        """Receives what rank `peer` sends into `out`, of as many elements, and returns it. `tag`: as for send."""
        if tag is None:
            return self._send_recv(None, -1, view_output(out), peer, stream)
        self._require_open()
        array = _on_host(view_output(out))
        self.bootstrap.recv(array.address, array.nbytes, peer, tag)
        return out

    def send_recv(self, tensor: Any, destination: int, out: Any, origin: int, stream: Any = None) -> Any:
        """Sends to one rank and receives from another, or the same, at once; returns `out`."""
        return self._send_recv(view(tensor), destination, view_output(out), origin, stream)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """`with comm.group():` performs the calls of the block together, when it ends.

        Then all its messages progress at the same time: those of send, recv, send_recv, all_gather_v and all_to_all_v.
        Between two ranks they match in the order of the calls. Short collectives that move data become one kernel.
        Results are not there before the end, and no call may use what another one writes. All ranks call the same
        collectives in the group; they run before its messages. A group in a group is part of it. After an exception in
        the block nothing is performed.
        """
        if self._group is not None:
            yield
            return
        pending: dict[DeviceType, PendingCalls] = {}
        self._group = pending
        try:
            yield
        finally:
            self._group = None
        for calls in pending.values():
            calls.run()

    def _send_recv(self, source: Array | None, destination: int, target: Array | None, origin: int, stream: Any) -> Any:
        sends = [(source.address, source.nbytes, destination)] if source else []
        receives = [(target.address, target.nbytes, origin)] if target else []
        return self._exchange(source, sends, target, receives, stream)

    def _run(self, collective: CollectiveType, source: Array | None, target: Array | None, count: int, stream: Any,
             algorithm: str | None = None, op: Operator = _SUM, root: int = 0, **rest: Any) -> Any:  # fmt: skip
        array = target or source
        assert array is not None
        collectives = self._collectives.get(array.device_type) or self.collectives(array.device_type)
        result = target.owner if target else None
        source_address = source.address if source else 0
        target_address = target.address if target else 0
        if self._group is None and not rest and type(op) is not Reduction:
            # Positional arguments, and no object for the call: a short call takes little more time than they do.
            collectives.run(collective, source_address, target_address, count, array.dtype, to_reduce_op(op), root,
                            stream_of(array, stream), algorithm or "")  # fmt: skip
            return result
        factor = None
        if isinstance(op, Reduction):
            rest.update(_factor_of(op, array))
            factor, op = op.factor, op.op
        call = CollectiveCall(collective, input=source_address, output=target_address, count=count, dtype=array.dtype,
                              op=to_reduce_op(op), root=root, stream=stream_of(array, stream),
                              algorithm=algorithm or "", **rest)  # fmt: skip
        if self._group is None:
            collectives.run(call)
        else:
            self._pending(array).add(call, source, target, factor)
        return result

    def _exchange_parts(self, source: Array, sends: list[Message], target: Array, receives: list[Message],
                        stream: Any) -> Any:  # fmt: skip
        """_exchange() of a part for each rank. Raises InvalidUsage if one is received where another is sent from; this
        rank's own part may stay in its place."""
        if source.address < target.address + target.nbytes and target.address < source.address + source.nbytes:
            own = sends[self.my_rank][0]
            for to, to_bytes, origin in receives:
                if origin == self.my_rank and to == own:
                    continue
                for at, at_bytes, destination in sends:
                    if to_bytes and at_bytes and at < to + to_bytes and to < at + at_bytes:
                        raise InvalidUsage(
                            f"input and output overlap: the part from rank {origin} is received where data for rank "
                            f"{destination} is sent from; pass another array as out (only this rank's own part may "
                            "stay in its place)"
                        )
        return self._exchange(source, sends, target, receives, stream)

    def _exchange(self, source: Array | None, sends: list[Message], target: Array | None, receives: list[Message],
                  stream: Any) -> Any:  # fmt: skip
        array = target or source
        assert array is not None
        calls = self._pending(array) if self._group is not None else PendingCalls(self.collectives(array.device_type))
        calls.add_messages(sends, receives, stream_of(array, stream), source, target)
        if self._group is None:
            calls.run()
        return target.owner if target else None

    def _pending(self, array: Array) -> PendingCalls:
        assert self._group is not None
        if array.device_type not in self._group:
            self._group[array.device_type] = PendingCalls(self.collectives(array.device_type))
        return self._group[array.device_type]

    def _gathered(self, source: Array) -> tuple[int, ...]:
        first, *others = source.shape or (1,)
        return (self.nranks * first, *others)

    def _part(self, source: Array) -> tuple[int, ...]:
        """The shape of one rank's part of an array that has one for each rank."""
        first, *others = source.shape or (1,)
        if first % self.nranks != 0:
            raise InvalidUsage(
                f"the first dimension of shape {tuple(source.shape)} is not divisible by the {self.nranks} ranks, "
                "which have parts of one size"
            )
        return (first // self.nranks, *others)

    def _counts(self, counts: Sequence[int]) -> Sequence[int]:
        if len(counts) != self.nranks or min(counts) < 0:
            wanted = f"a number that is not negative for each of {self.nranks} ranks"
            raise InvalidUsage(f"counts are {counts}: pass {wanted}")
        return counts

    def _require_counts(self, source: Array, counts: Sequence[int], what: str) -> None:
        if len(source.shape) == 0 or source.shape[0] != sum(counts):
            raise InvalidUsage(
                f"{what} {', '.join(map(str, counts))}, but the tensor has shape {tuple(source.shape)}: counts are of "
                "the first dimension"
            )

    def _target(self, out: Any, source: Array, shape: tuple[int, ...]) -> Array:
        if out is None:
            return empty_like(source, shape)
        if out is source.owner and source.shape == shape:
            require_writable(source)
            return source
        target = view_output(out)
        if target.dtype is not source.dtype:
            raise InvalidUsage(f"out has elements of {target.dtype.name}, tensor of {source.dtype.name}: use one type")
        ids = (target.device_id, source.device_id)
        if target.device_type is not source.device_type or (ids[0] != ids[1] and UNKNOWN_DEVICE not in ids):
            places = ["the CPU" if array.device_type is CPU else "a GPU" for array in (target, source)]
            raise InvalidUsage(
                f"out is on {places[0]} ({target.device_id}), tensor on {places[1]} ({source.device_id}): both belong "
                "on the same device"
            )
        if target.size != math.prod(shape):
            raise InvalidUsage(f"out has shape {tuple(target.shape)}, but the result has shape {tuple(shape)}")
        return target


def _factor_of(reduction: Reduction, array: Array) -> dict[str, Any]:
    """The factor as arguments of a CollectiveCall."""
    if isinstance(reduction.factor, (int, float)):
        return {"factor": float(reduction.factor)}
    factor = view(reduction.factor, "the factor")
    if factor.size != 1 or factor.dtype is not array.dtype or factor.device_type is not array.device_type:
        raise InvalidUsage("the factor is a number, or an array of one element of the tensor's type, on its device")
    return {"factor_address": factor.address}


def _on_host(array: Array) -> Array:
    if array.device_type != CPU:
        raise InvalidUsage("with tag= the bootstrap moves arrays of the host: copy it to the CPU, or omit tag=")
    return array
