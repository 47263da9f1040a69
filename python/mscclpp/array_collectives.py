"""The collectives on arrays: shapes, types and devices are checked, then the compiled ones run."""

from ._mscclpp import CollectiveCall, CollectiveType, DeviceType, ReduceOp
from .arrays import UNKNOWN_DEVICE, empty_like, require_writable, stream_of, view, view_output
from .dtypes import to_reduce_op
from .errors import InvalidUsage


class ArrayCollectives:
    """The collectives of a CommGroup.

    Every rank calls them, in the same order, with arrays of the same type; a send and its recv are called by the two
    ranks concerned. Arrays are contiguous: torch tensors, numpy arrays on CPU ranks, or anything with `__dlpack__` or
    `__cuda_array_interface__`. A result goes to `out`, which is returned; without `out` it is a new array, and with
    `out` the same as the input, the collective works in place (all_to_all does not). Where ranks contribute parts,
    these follow one another along the first dimension, in rank order.

    On GPUs a call is enqueued on `stream`: by default the current one of torch or cupy, else the default stream. On
    CPU ranks it returns when it is done. `algorithm`: a name of docs/collectives.md; by default chosen by size.

    Calls raise InvalidUsage for arrays that do not fit, RemoteError if another rank has failed, and Timeout.
    """

    def all_reduce(self, tensor, op="sum", out=None, stream=None, algorithm=None):
        """Reduces over all ranks; all get the same bits. `out` has the shape of `tensor`."""
        source = view(tensor)
        target = self._target(out, source, source.shape)
        return self._run(CollectiveType.all_reduce, source, target, source.size, stream, algorithm, op=op)

    def all_gather(self, tensor, out=None, stream=None, algorithm=None):
        """Every rank gets the tensors of all: shape (d, ...) gives (ranks * d, ...)."""
        source = view(tensor)
        target = self._target(out, source, self._gathered(source))
        return self._run(CollectiveType.all_gather, source, target, source.size, stream, algorithm)

    def reduce_scatter(self, tensor, op="sum", out=None, stream=None, algorithm=None):
        """Reduces over all ranks, and rank r gets part r: shape (ranks * d, ...) gives (d, ...)."""
        source = view(tensor)
        target = self._target(out, source, self._part(source))
        return self._run(CollectiveType.reduce_scatter, source, target, target.size, stream, algorithm, op=op)

    def all_to_all(self, tensor, out=None, stream=None, algorithm=None):
        """Part r of the tensor goes to rank r, into the part of its result for this rank: (ranks * d, ...)."""
        source = view(tensor)
        self._part(source)
        target = self._target(out, source, source.shape)
        return self._run(CollectiveType.all_to_all, source, target, source.size // self.nranks, stream, algorithm)

    def broadcast(self, tensor, root=0, out=None, stream=None, algorithm=None):
        """Every rank gets the tensor of `root`; what the others pass gives the shape and type."""
        source = view(tensor)
        target = self._target(out, source, source.shape)
        return self._run(CollectiveType.broadcast, source, target, source.size, stream, algorithm, root=root)

    def reduce(self, tensor, root=0, op="sum", out=None, stream=None, algorithm=None):
        """Reduces over all ranks to `root`, which gets the result; the others get None."""
        source = view(tensor)
        target = self._target(out, source, source.shape) if self.my_rank == root else None
        return self._run(CollectiveType.reduce, source, target, source.size, stream, algorithm, op=op, root=root)

    def gather(self, tensor, root=0, out=None, stream=None, algorithm=None):
        """`root` gets the tensors of all ranks, of shape (ranks * d, ...); the others get None."""
        source = view(tensor)
        target = self._target(out, source, self._gathered(source)) if self.my_rank == root else None
        return self._run(CollectiveType.gather, source, target, source.size, stream, algorithm, root=root)

    def scatter(self, tensor, root=0, out=None, stream=None, algorithm=None):
        """Rank r gets part r of the tensor of `root`: (ranks * d, ...) gives (d, ...). Others pass None and `out`."""
        if self.my_rank == root:
            source = view(tensor)
            target = self._target(out, source, self._part(source))
        elif out is None:
            raise InvalidUsage("scatter: a rank that is not the root passes out=, which gives the shape and type")
        else:
            source, target = None, view_output(out)
        return self._run(CollectiveType.scatter, source, target, target.size, stream, algorithm, root=root)

    def send(self, tensor, peer, stream=None):
        """Sends a tensor to rank `peer`, which calls recv. Two ranks that send to each other use send_recv."""
        self._send_recv(view(tensor), peer, None, -1, stream)

    def recv(self, out, peer, stream=None):
        """Receives what rank `peer` sends into `out`, of as many elements, and returns it."""
        return self._send_recv(None, -1, view_output(out), peer, stream)

    def send_recv(self, tensor, destination, out, origin, stream=None):
        """Sends to one rank and receives from another, or the same, at once; returns `out`."""
        return self._send_recv(view(tensor), destination, view_output(out), origin, stream)

    def _send_recv(self, source, destination, target, origin, stream):
        return self._run(
            CollectiveType.send_receive,
            source,
            target,
            source.size if source else 0,
            stream,
            destination=destination,
            origin=origin,
            received_count=target.size if target else 0,
        )

    def _run(self, collective, source, target, count, stream, algorithm=None, op=ReduceOp.SUM, **rest):
        array = target or source
        call = CollectiveCall(
            collective,
            input=source.address if source else 0,
            output=target.address if target else 0,
            count=count,
            dtype=array.dtype,
            op=to_reduce_op(op),
            stream=stream_of(array, stream),
            algorithm=algorithm or "",
            **rest,
        )
        self.collectives(array.device_type).run(call)
        return target.owner if target else None

    def _gathered(self, source):
        first, *others = source.shape or (1,)
        return (self.nranks * first, *others)

    def _part(self, source):
        """The shape of one rank's part of an array that has one for each rank."""
        first, *others = source.shape or (1,)
        if first % self.nranks != 0:
            raise InvalidUsage(
                f"the first dimension of shape {source.shape} is not divisible by the {self.nranks} ranks, which have "
                "parts of one size"
            )
        return (first // self.nranks, *others)

    def _target(self, out, source, shape):
        if out is None:
            return empty_like(source, shape)
        if out is source.owner and source.shape == shape:
            require_writable(source)
            return source
        target = view_output(out)
        if target.dtype != source.dtype:
            raise InvalidUsage(f"out has elements of {target.dtype.name}, tensor of {source.dtype.name}: use one type")
        ids = {target.device_id, source.device_id} - {UNKNOWN_DEVICE}
        if target.device_type != source.device_type or len(ids) > 1:
            places = {DeviceType.CPU: "the CPU", DeviceType.GPU: "a GPU"}
            raise InvalidUsage(
                f"out is on {places[target.device_type]} ({target.device_id}), tensor on {places[source.device_type]} "
                f"({source.device_id}): both belong on the same device"
            )
        expected = 1
        for extent in shape:
            expected *= extent
        if target.size != expected:
            raise InvalidUsage(f"out has shape {target.shape}, but the result has shape {shape}")
        return target
