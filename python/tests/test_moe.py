"""mscclpp.moe on CPU ranks: dispatch and combine in every format and both forms, compilation, errors."""

import mscclpp
import pytest
from rank_threads import lone_bootstrap, run_threads

torch = pytest.importorskip("torch")
moe = pytest.importorskip("mscclpp.moe")

HIDDEN, TOPK, LOCAL = 256, 3, 4


def inputs(rank, ranks, tokens):
    generator = torch.Generator().manual_seed(rank)
    x = (torch.randint(-16, 17, (tokens, HIDDEN), generator=generator) / 8).to(torch.bfloat16)
    experts = torch.stack([torch.randperm(ranks * LOCAL, generator=generator)[:TOPK] for _ in range(tokens)])
    experts[torch.rand(experts.shape, generator=generator) < 0.1] = -1
    return x, experts, torch.randint(0, 9, (tokens, TOPK), generator=generator) / 8


def values(rows, format):
    if format == "bf16":
        return rows.rows.float()
    return rows.rows.float() * rows.scales.repeat_interleave(128, dim=1)


def check(bootstrap, format):
    comm = mscclpp.CommGroup(bootstrap=bootstrap)
    rank, ranks = comm.my_rank, comm.nranks
    tokens = [7, 0, 12][rank]
    buffer = moe.Buffer(comm, experts=ranks * LOCAL, hidden=HIDDEN, topk=TOPK, max_tokens=12, max_low_latency_tokens=12,
                        format=format, alignment=4, device="cpu")  # fmt: skip
    x, experts, weights = inputs(rank, ranks, 16)
    x, experts, weights = x[:tokens].contiguous(), experts[:tokens].contiguous(), weights[:tokens].contiguous()
    argument = (x.to(torch.float8_e4m3fn), torch.full((tokens, 2), 2.0)) if format == "fp8" else x
    sent = x.to(torch.float8_e4m3fn).float() * 2 if format == "fp8" else x.float()
    factor = (experts + 1).clamp(min=0) * weights  # expert e multiplies by e + 1
    wanted = sent * factor.sum(1, keepdim=True)
    per_rank, per_expert, is_in_rank = buffer.get_dispatch_layout(experts)
    assert per_expert.tolist() == [(experts == e).sum().item() for e in range(ranks * LOCAL)]
    assert per_rank.tolist() == is_in_rank.sum(0).tolist()
    for form in range(4):
        if form == 0:
            rows, handle = buffer.dispatch(argument, experts, weights)
        else:
            rows, handle, hook = buffer.low_latency_dispatch(argument, experts, weights, return_recv_hook=form == 2)
            if form == 2:
                hook()
            else:
                assert hook is None
        results = torch.full(rows.rows.shape, torch.nan, dtype=torch.bfloat16)
        for e in range(LOCAL):
            first, count = rows.offsets[e], rows.counts[e]
            assert first % 4 == 0
            part = values(rows, format)[first : first + count] * (rank * LOCAL + e + 1)
            results[first : first + count] = part.to(torch.bfloat16)
        if form == 0:
            output = buffer.combine(results, handle)
        else:
            output, hook = buffer.low_latency_combine(results, handle, return_recv_hook=form == 3)
            if form == 3:
                hook()
        error = {"bf16": 0.02, "fp8": 0.02, "quantise": 0.1}[format]
        assert torch.allclose(output.float(), wanted, rtol=error, atol=12 * 3 * 2 * error), form
    buffer.check()
    comm.barrier()
    return True


@pytest.mark.parametrize("format", ["bf16", "fp8", "quantise"])
def test_dispatch_and_combine(format):
    assert run_threads(3, lambda bootstrap: check(bootstrap, format), timeout=120) == [True] * 3


def single(bootstrap):
    comm = mscclpp.CommGroup(bootstrap=bootstrap)
    return comm, moe.Buffer(comm, experts=LOCAL, hidden=HIDDEN, topk=TOPK, max_tokens=8, device="cpu")


def test_fake_kernels_and_errors():
    def body(bootstrap):
        comm, buffer = single(bootstrap)
        x, experts, weights = inputs(0, 1, 8)
        dispatch, combine = torch.ops.mscclpp_moe.dispatch, torch.ops.mscclpp_moe.combine
        order = torch.zeros(1)
        torch.library.opcheck(dispatch, (order, x, None, experts, weights, buffer.name, False),
                              test_utils=("test_schema", "test_faketensor"))  # fmt: skip
        rows, handle = buffer.dispatch(x, experts)
        results = torch.zeros_like(rows.rows)
        torch.library.opcheck(combine, (order, results, handle.memory, 8, buffer.name, False),
                              test_utils=("test_schema", "test_faketensor"))  # fmt: skip
        with pytest.raises(mscclpp.InvalidUsage, match="it must be a contiguous tensor of torch.bfloat16"):
            buffer.dispatch(x.float(), experts)
        with pytest.raises(mscclpp.InvalidUsage, match="topk_idx is torch.int32"):
            buffer.dispatch(x, experts.int())
        with pytest.raises(mscclpp.InvalidUsage, match="another number"):
            buffer.dispatch(x, experts[:4].contiguous())
        with pytest.raises(mscclpp.InvalidUsage, match="maxLowLatencyTokens is 0"):
            buffer.low_latency_dispatch(x, experts)
        with pytest.raises(mscclpp.InvalidUsage, match="x is torch.bfloat16 of shape .8, 256., not contiguous"):
            buffer.dispatch(x.t().contiguous().t(), experts)
        with pytest.raises(mscclpp.InvalidUsage, match="with 256 columns"):
            buffer.dispatch(x[:, :128].contiguous(), experts)
        with pytest.raises(mscclpp.InvalidUsage, match="at a multiple of 16 bytes"):
            buffer.dispatch(torch.empty(8 * HIDDEN + 4, dtype=torch.bfloat16)[4:].view(8, HIDDEN), experts)
        with pytest.raises(mscclpp.InvalidUsage, match=f"x has 5 rows: pass a result for each of the {8 * TOPK}"):
            buffer.combine(results[:5], handle)
        with pytest.raises(mscclpp.InvalidUsage, match="with 256 columns"):
            buffer.combine(results[:, :16].contiguous(), handle)
        with pytest.raises(mscclpp.InvalidUsage, match="of the other form: use combine"):
            buffer.low_latency_combine(results, handle)
        with pytest.raises(mscclpp.InvalidUsage, match="of another buffer"):
            buffer.combine(results, handle._replace(buffer="moe-none"))
        with pytest.raises(mscclpp.InvalidUsage, match="the handle's memory is not that of a dispatch"):
            combine(order, results, handle.memory[:-1], 8, buffer.name, False)
        with pytest.raises(mscclpp.InvalidUsage, match="9 tokens, but the buffer is for 8"):
            combine(order, results, handle.memory, 9, buffer.name, False)
        with pytest.raises(mscclpp.InvalidUsage, match="no longer exists"):
            combine(order, results, handle.memory, 8, "moe-none", False)
        return True

    assert body(lone_bootstrap())


def test_closed_group():
    comm = mscclpp.CommGroup(bootstrap=lone_bootstrap())
    comm.close()
    with pytest.raises(mscclpp.InvalidUsage, match="closed"):
        moe.Buffer(comm, experts=LOCAL, hidden=HIDDEN, topk=TOPK, max_tokens=8, device="cpu")


def tokens_to_first_experts(count):
    """As many tokens, each for the first expert of either rank."""
    return torch.ones(count, HIDDEN, dtype=torch.bfloat16), torch.tensor([[0, 2]]).repeat(count, 1)


def check_unused_results(comm):
    buffer = moe.Buffer(comm, experts=4, hidden=HIDDEN, topk=2, max_tokens=8, device="cpu")
    x, experts = tokens_to_first_experts(8)

    def layer():
        load = buffer.dispatch(x * 100, experts)[0].rows.float().sum()  # rank 0 alone returns it
        rows, handle = buffer.dispatch(x, experts)
        output = buffer.combine(rows.rows, handle)
        return (output, load) if comm.my_rank == 0 else (output,)

    for backend in ("aot_eager", "inductor"):
        output = torch.compile(layer, fullgraph=True, backend=backend)()[0]
        assert torch.equal(output, 2 * x), backend
    buffer.check()
    return True


def check_order_of_sizes(comm):
    buffer = moe.Buffer(comm, experts=4, hidden=HIDDEN, topk=2, max_tokens=4096, device="cpu")
    first, second = (8, 4096) if comm.my_rank == 0 else (4096, 8)

    def layers(x, experts, y, others):
        u, v = x * 1.0, y * 2.0
        rows, more = buffer.dispatch(u, experts)[0], buffer.dispatch(v, others)[0]
        return rows.rows.float()[:16].sum(1), more.rows.float()[:16].sum(1), rows.counts + 0, more.counts + 0

    sums, more, counts, others = torch.compile(layers, fullgraph=True)(
        *tokens_to_first_experts(first), *tokens_to_first_experts(second)
    )
    assert torch.all(sums == HIDDEN) and torch.all(more == 2 * HIDDEN)
    assert counts.tolist() == others.tolist() == [8 + 4096, 0]
    buffer.check()
    return True


@pytest.mark.parametrize("check", [check_unused_results, check_order_of_sizes])
def test_compiled_calls_are_those_of_the_program(check):
    """On all ranks, whatever a rank uses of their results, and however many tokens it has."""
    assert mscclpp.run(2, check, timeout=600) == [True, True]


@pytest.mark.parametrize("wrong", ["buffer", "form", "tokens"])
def test_memory_of_another_handle(wrong):
    comm = mscclpp.CommGroup(bootstrap=lone_bootstrap())
    buffer, other = (moe.Buffer(comm, experts=LOCAL, hidden=HIDDEN, topk=TOPK, max_tokens=8, max_low_latency_tokens=8,
                                device="cpu") for _ in range(2))  # fmt: skip
    x, experts, weights = inputs(0, 1, 8)
    rows, handle = buffer.dispatch(x, experts, weights)
    results = torch.zeros(rows.rows.shape, dtype=torch.bfloat16)
    combine, order = torch.ops.mscclpp_moe.combine, torch.zeros(1)
    # A copy is the same handle.
    assert combine(order, results, handle.memory.clone(), 8, buffer.name, False).shape == x.shape
    memory = {
        "buffer": lambda: other.dispatch(x, experts, weights)[1].memory,
        "form": lambda: buffer.low_latency_dispatch(x, experts, weights)[1].memory,
        "tokens": lambda: handle.memory,
    }[wrong]()
    with pytest.raises(mscclpp.InvalidUsage, match="combines with a handle of another buffer or form, of a dispatch"):
        combine(order, results, memory, 7 if wrong == "tokens" else 8, buffer.name, False)


def test_order_of_calls_and_capacity():
    def body(bootstrap):
        comm = mscclpp.CommGroup(bootstrap=bootstrap)
        buffer = moe.Buffer(comm, experts=LOCAL, hidden=HIDDEN, topk=TOPK, max_tokens=8, max_low_latency_tokens=8,
                            capacity=11, device="cpu")  # fmt: skip
        x, experts, weights = inputs(0, 1, 8)
        rows, handle, hook = buffer.low_latency_dispatch(x, experts, weights, return_recv_hook=True)
        with pytest.raises(mscclpp.InvalidUsage, match="a dispatch with this handle has been sent and not received"):
            buffer.low_latency_combine(torch.zeros(rows.rows.shape, dtype=torch.bfloat16), handle)
        with pytest.raises(mscclpp.InvalidUsage, match="the dispatch before has been sent and not received"):
            buffer.low_latency_dispatch(x, experts, weights)
        hook()
        with pytest.raises(mscclpp.InvalidUsage, match="a hook is called twice"):
            hook()
        with pytest.raises(mscclpp.InvalidUsage, match="output of rank 0 for the rows of its experts holds 11 rows"):
            buffer.dispatch(x, torch.arange(TOPK).expand(8, TOPK).contiguous())
        return True

    assert body(lone_bootstrap())
