"""Dispatch and combine of a mixture of experts for tensors of PyTorch, in the shape of DeepEP's Buffer."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch

from ._mscclpp import DeviceType, MoeBuffer, MoeRowFormat
from .comm_group import CommGroup
from .errors import InvalidUsage

_FORMATS = {"bf16": MoeRowFormat.Bf16, "fp8": MoeRowFormat.Fp8, "quantise": MoeRowFormat.QuantiseBf16}
_buffers: weakref.WeakValueDictionary[str, Buffer] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_order_tensors: dict[torch.device, torch.Tensor] = {}


def _order_on(device):
    """The tensor on a device that every dispatch and combine there claims to write.

    So compilers keep all of these calls, in the order of the program. Without it they would drop one whose result a
    rank does not use, and order others by their sizes, which differ between ranks.
    """
    if device not in _order_tensors:
        import torch._dynamo  # takes a second

        with torch.inference_mode(False):
            order = torch.zeros(1, device=device)
        torch._dynamo.mark_static_address(order)  # compiled CUDA graphs take it although it is written
        _order_tensors[device] = order
    return _order_tensors[device]


class ExpertRows(NamedTuple):
    """Rows of this rank's experts: expert e has rows[offsets[e] : offsets[e] + counts[e]]."""

    rows: torch.Tensor
    scales: torch.Tensor  # float32, one for each 128 values of a row; without columns for bf16
    counts: torch.Tensor  # int32
    offsets: torch.Tensor  # int32; one more than experts


class Handle(NamedTuple):
    """What a combine has to know of its dispatch."""

    memory: torch.Tensor
    tokens: int
    low_latency: bool
    buffer: str  # the name of the buffer that dispatched


class Buffer:
    """Owns the scratch of dispatches and combines on all ranks of a group; docs/moe.md has the rest.

    All ranks make it together, with the same arguments, and make the same calls. max_tokens: the most tokens of a rank
    in dispatch(); max_low_latency_tokens: in low_latency_dispatch(), up to 1024; 0: without that form. experts: of all
    ranks. format: "bf16"; "fp8", rows of float8_e4m3fn with a scale for each 128 values, passed as a pair; or
    "quantise", bf16 that is delivered as fp8. capacity: rows of the output of dispatch(). By default enough for every
    routing where they take up to 256 MiB; else those of 256 MiB or, if that is more, twice as many as a routing needs
    that treats all ranks alike. If a rank gets more, the call fails on all ranks, and check() raises an error that
    names it.
    blocks, low_latency_blocks: the most blocks of a kernel; 0: nearly all, and 128. bulk_copies: dispatch() sends rows
    that are not quantised by bulk copies, for few blocks.
    """

    def __init__(self, group: CommGroup, *, experts: int, hidden: int, topk: int = 8, max_tokens: int = 0,
                 max_low_latency_tokens: int = 0, format: str = "bf16", alignment: int = 1, capacity: int = 0,
                 blocks: int = 0, low_latency_blocks: int = 0, bulk_copies: bool = False,
                 device: str = "cuda") -> None:  # fmt: skip
        if format not in _FORMATS:
            raise InvalidUsage(f"format is {format!r}: use one of {', '.join(_FORMATS)}")
        if device not in ("cpu", "cuda"):
            raise InvalidUsage(f"device is {device!r}: use 'cpu' or 'cuda'")
        if not 0 <= capacity < 1 << 31:
            raise InvalidUsage(f"capacity is {capacity}: it is a number of rows below 2^31, or 0 for the default")
        group._require_open()
        where = DeviceType.GPU if device == "cuda" else DeviceType.CPU
        self.group = group
        self.experts, self.hidden, self.topk, self.format = experts, hidden, topk, format
        self.device = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device("cpu")
        self._buffer = MoeBuffer(group.communicator, where, max_tokens, max_low_latency_tokens, topk, experts, hidden,
                                 _FORMATS[format], alignment, blocks, low_latency_blocks, bulk_copies)  # fmt: skip
        self.capacity = capacity or self._buffer.default_capacity
        self._order = _order_on(self.device)
        # What the operators take. Results of compilation are cached by it, also for later processes: so it has all that
        # the shapes of outputs depend on.
        self.name = "-".join(
            str(part)
            for part in (f"moe{next(_numbers)}", group.nranks, experts, hidden, format, self.capacity,
                         self._buffer.low_latency_capacity, self._buffer.handle_bytes)
        )  # fmt: skip
        _buffers[self.name] = self

    def get_dispatch_layout(self, topk_idx: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens for each rank and for each expert, and a tensor of bool, tokens x ranks: who gets a token."""
        self._require(topk_idx, torch.int64, "topk_idx", self.topk)
        tokens, ranks = topk_idx.shape[0], self.group.nranks
        per_rank, per_expert = self._empty(torch.int32, ranks), self._empty(torch.int32, self.experts)
        index, places = self._empty(torch.int32, tokens, ranks), self._empty(torch.int32, tokens, self.topk)
        self._buffer.get_dispatch_layout(topk_idx.data_ptr(), tokens, per_rank.data_ptr(), per_expert.data_ptr(),
                                         index.data_ptr(), places.data_ptr(), self._stream())  # fmt: skip
        return per_rank, per_expert, index >= 0

    def dispatch(self, x, topk_idx: torch.Tensor,
                 topk_weights: torch.Tensor | None = None) -> tuple[ExpertRows, Handle]:  # fmt: skip
        """Sends the rows of x to the ranks of their experts. x: tokens x hidden; for "fp8": (values, scales)."""
        return self._dispatch(x, topk_idx, topk_weights, low_latency=False)

    def combine(self, x: torch.Tensor, handle: Handle) -> torch.Tensor:
        """The weighted sums of the experts' results x, bf16, which are placed as the rows of the dispatch were.

        x has as many rows as the output of the dispatch; those that no expert has may have any value.
        """
        return self._combine(x, handle, low_latency=False)

    def _combine(self, x, handle, low_latency):
        self._require_handle(handle, low_latency)
        return torch.ops.mscclpp_moe.combine(
            self._order, x, handle.memory, handle.tokens, self.name, handle.low_latency
        )

    def low_latency_dispatch(self, x, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None = None,
                             return_recv_hook: bool = False,
                             ) -> tuple[ExpertRows, Handle, Callable[[], None] | None]:  # fmt: skip
        """The same for few tokens. With the hook the call only sends: what is enqueued before hook() runs meanwhile.

        hook() enqueues the rest on the stream of the call, whichever is current.
        """
        if not return_recv_hook:
            return *self._dispatch(x, topk_idx, topk_weights, low_latency=True), None
        values, scales = x if isinstance(x, tuple) else (x, None)
        *rows, memory, hook = self._run_dispatch(values, scales, topk_idx, topk_weights, True, True)
        receive = functools.partial(_receive, hook, (self, x, topk_idx, topk_weights, rows, memory))
        return ExpertRows(*rows), Handle(memory, values.shape[0], True, self.name), receive

    def low_latency_combine(self, x: torch.Tensor, handle: Handle, return_recv_hook: bool = False,
                            ) -> tuple[torch.Tensor, Callable[[], None] | None]:  # fmt: skip
        """The same as combine() for a low-latency dispatch."""
        if not return_recv_hook:
            return self._combine(x, handle, low_latency=True), None
        self._require_handle(handle, low_latency=True)
        output, hook = self._run_combine(x, handle.memory, handle.tokens, handle.low_latency, True)
        return output, functools.partial(_receive, hook, (self, x, handle.memory, output))

    def check(self) -> None:
        """Raises if a call has failed. On GPUs after synchronising the stream."""
        self._buffer.check()

    def _dispatch(self, x, topk_idx, topk_weights, low_latency):
        values, scales = x if isinstance(x, tuple) else (x, None)
        *rows, memory = torch.ops.mscclpp_moe.dispatch(
            self._order, values, scales, topk_idx, topk_weights, self.name, low_latency
        )
        return ExpertRows(*rows), Handle(memory, values.shape[0], low_latency, self.name)

    def _empty(self, dtype, *shape):
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _outputs(self, low_latency):
        capacity = self._buffer.low_latency_capacity if low_latency else self.capacity
        groups = self._buffer.scale_groups
        local = self.experts // self.group.nranks
        dtype = torch.bfloat16 if self.format == "bf16" else torch.float8_e4m3fn
        return (
            self._empty(dtype, capacity, self.hidden),
            self._empty(torch.float32, capacity if groups else 0, groups),
            self._empty(torch.int32, local),
            self._empty(torch.int32, local + 1),
            self._empty(torch.uint8, self._buffer.handle_bytes),
        )

    def _require_current(self):
        if self.device.type == "cuda" and torch.cuda.current_device() != self.device.index:
            raise InvalidUsage(f"the buffer is on {self.device}, not the current device: call torch.cuda.set_device()")

    def _stream(self):
        self._require_current()
        return torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0

    def _require(self, tensor, dtype, name, columns):
        right = tensor.dim() == 2 and tensor.shape[1] == columns and tensor.dtype == dtype
        if not right or tensor.device != self.device or not tensor.is_contiguous():
            strided = "" if tensor.is_contiguous() else ", not contiguous,"
            raise InvalidUsage(
                f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}{strided} on {tensor.device}: it must be a "
                f"contiguous tensor of {dtype} with {columns} columns on {self.device} (see .to() and .contiguous())"
            )

    def _require_handle(self, handle, low_latency):
        if handle.buffer != self.name:
            raise InvalidUsage("the handle is of another buffer: combine with the one that dispatched")
        if handle.low_latency != low_latency:
            form = "low_latency_combine" if handle.low_latency else "combine"
            raise InvalidUsage(f"the handle is of a dispatch of the other form: use {form}()")

    def _run_dispatch(self, x, scales, topk_idx, topk_weights, low_latency, returns_hook):
        self._require(x, torch.float8_e4m3fn if self.format == "fp8" else torch.bfloat16, "x", self.hidden)
        self._require(topk_idx, torch.int64, "topk_idx", self.topk)
        if topk_weights is not None:
            self._require(topk_weights, torch.float32, "topk_weights", self.topk)
        if self.format == "fp8":
            if scales is None:
                raise InvalidUsage('format is "fp8": pass the pair (values, scales)')
            self._require(scales, torch.float32, "scales", self._buffer.scale_groups)
        elif scales is not None:
            raise InvalidUsage(f'x has scales, but format is "{self.format}": use "fp8", or pass the values alone')
        others = [tensor for tensor in (scales, topk_idx, topk_weights) if tensor is not None]
        if any(tensor.shape[0] != x.shape[0] for tensor in others):
            raise InvalidUsage(f"x has {x.shape[0]} tokens, topk_idx, the weights or the scales another number")
        rows, row_scales, counts, offsets, memory = outputs = self._outputs(low_latency)
        hook = self._buffer.dispatch(
            low_latency, x.data_ptr(), 0 if scales is None else scales.data_ptr(), topk_idx.data_ptr(),
            0 if topk_weights is None else topk_weights.data_ptr(), x.shape[0], rows.data_ptr(), row_scales.data_ptr(),
            counts.data_ptr(), offsets.data_ptr(), rows.shape[0], memory.data_ptr(), self._stream(),
            returns_hook)  # fmt: skip
        return (*outputs, hook) if returns_hook else outputs

    def _run_combine(self, x, memory, tokens, low_latency, returns_hook):
        self._require(x, torch.bfloat16, "x", self.hidden)
        rows = self._buffer.low_latency_capacity if low_latency else self.capacity
        if x.shape[0] != rows:
            raise InvalidUsage(
                f"x has {x.shape[0]} rows: pass a result for each of the {rows} of the dispatch's output, in the same "
                "places; those that no expert has may have any value"
            )
        right = memory.dtype == torch.uint8 and memory.shape == (self._buffer.handle_bytes,)
        if not right or memory.device != self.device or not memory.is_contiguous():
            raise InvalidUsage("the handle's memory is not that of a dispatch of this buffer: pass Handle.memory")
        output = self._empty(torch.bfloat16, tokens, self.hidden)
        hook = self._buffer.combine(low_latency, x.data_ptr(), output.data_ptr(), tokens, memory.data_ptr(),
                                    self._stream(), returns_hook)  # fmt: skip
        return (output, hook) if returns_hook else output


def _receive(hook, uses):
    # The buffer and the tensors that the call uses live as long as it can be made.
    buffer, *_ = uses
    buffer._require_current()
    hook()


def _named(name: str) -> Buffer:
    buffer = _buffers.get(name)
    if buffer is None:
        raise InvalidUsage(f"the buffer {name!r} no longer exists: keep a reference to it")
    return buffer


@torch.library.custom_op("mscclpp_moe::dispatch", mutates_args=("order",))
def _dispatch(
    order: torch.Tensor,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    topk_idx: torch.Tensor,
    topk_weights: torch.Tensor | None,
    buffer: str,
    low_latency: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _named(buffer)._run_dispatch(x, scales, topk_idx, topk_weights, low_latency, False)


@_dispatch.register_fake
def _(order, x, scales, topk_idx, topk_weights, buffer, low_latency):
    return _named(buffer)._outputs(low_latency)


@torch.library.custom_op("mscclpp_moe::combine", mutates_args=("order",))
def _combine(
    order: torch.Tensor, x: torch.Tensor, handle: torch.Tensor, tokens: int, buffer: str, low_latency: bool
) -> torch.Tensor:
    return _named(buffer)._run_combine(x, handle, tokens, low_latency, False)


@_combine.register_fake
def _(order, x, handle, tokens, buffer, low_latency):
    return x.new_empty((tokens, x.shape[1]))
