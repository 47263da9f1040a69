"""Matrix multiplications with communication inside on CPU ranks, as methods of a group and as operators of PyTorch."""

import mscclpp
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", exc_type=ImportError)

from gemm_reference import operand, product, require_close  # noqa: E402
from rank_threads import run_threads, single_rank  # noqa: E402
from test_torch_ops import quantised_reference  # noqa: E402

NAMES = ("gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm")
# Parts of rows (of a rank, where they are divided), width, depth. The second row shares the scratch of the first, the
# fourth one needs more.
SHAPES = ((3, 24, 16), (1, 24, 40), (2, 7, 33), (90, 24, 16))


def operands(comm, name, rows, width, depth):
    """(input, weight) of each rank."""
    count = rows if name == "all_gather_gemm" else rows * comm.nranks
    return [(operand(count, depth, rank), operand(width, depth, rank + 100)) for rank in range(comm.nranks)]


def check_values(comm, name, call, rows, width, depth):
    each = operands(comm, name, rows, width, depth)
    input, weight = each[comm.my_rank]
    result = call(input, weight)
    if name == "all_gather_gemm":
        require_close(result, [product(torch.cat([other for other, _ in each]), weight)])
        return
    products = [product(*pair) for pair in each]
    if name == "gemm_reduce_scatter":
        part = slice(rows * comm.my_rank, rows * (comm.my_rank + 1))
        products = [(exact[part], bound[part]) for exact, bound in products]
    require_close(result, products)
    if name == "gemm_all_reduce":
        bits = comm.all_gather(result.view(torch.int16)[None])
        assert (bits == bits[0]).all()  # the same on all ranks


def check_numpy(comm):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in NAMES:
        input, weight = operands(comm, name, 4, 24, 16)[comm.my_rank]
        wanted = getattr(comm, name)(input, weight)
        arrays = [tensor.float().numpy().astype(ml_dtypes.bfloat16) for tensor in (input, weight)]
        found = getattr(comm, name)(*arrays)
        assert found.dtype == ml_dtypes.bfloat16 and found.shape == tuple(wanted.shape)
        assert torch.equal(torch.from_numpy(found.astype("float32")), wanted.float())


def check_arrays(comm):
    for name in NAMES:
        call = getattr(comm, name)
        for shape in SHAPES:
            check_values(comm, name, call, *shape)
        input, weight = operands(comm, name, 2, 24, 16)[comm.my_rank]
        wanted = call(input, weight)
        out = torch.full_like(wanted, 7)
        assert call(input, weight, out=out) is out and torch.equal(out, wanted)
        deeper = input.reshape(-1, 1, 16)  # more dimensions
        assert torch.equal(call(deeper, weight).squeeze(1), wanted)
        assert call(input[:0], weight).shape == (0, 24)
        for sentence, wrong in {
            "and weight (24, 15)": lambda: call(input, weight[:, 1:].contiguous()),
            "and weight (16,)": lambda: call(input, weight[0]),
            "at least one element": lambda: call(input, weight[:0]),
            "input has elements of float32": lambda: call(input.float(), weight),
            "weight has elements of float16": lambda: call(input, weight.half()),
            "out has shape": lambda: call(input, weight, out=torch.empty(1, 24).bfloat16()),
            "input is not contiguous": lambda: call(input.t(), weight),
        }.items():
            with pytest.raises(mscclpp.InvalidUsage) as caught:
                wrong()
            assert sentence in str(caught.value), (sentence, caught.value)
    if comm.nranks > 1:
        with pytest.raises(mscclpp.InvalidUsage, match="is not divisible by the"):
            comm.gemm_reduce_scatter(operand(1, 16, 0), operand(24, 16, 0))
    comm.fused_gemms(mscclpp.DeviceType.CPU).check()


def test_of_one_rank():
    with single_rank() as comm:
        check_arrays(comm)
        check_numpy(comm)
    with pytest.raises(mscclpp.InvalidUsage, match="the group is closed"):
        comm.gemm_all_reduce(operand(1, 16, 0), operand(24, 16, 0))


def in_thread(bootstrap):
    with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
        check_arrays(comm)


@pytest.mark.parametrize("ranks", [2, 3])
def test_on_ranks(ranks):
    run_threads(ranks, in_thread, timeout=120)


def call_alone(bootstrap):
    """The sentences of two calls of rank 0 that rank 1 does not make."""
    comm = mscclpp.CommGroup(bootstrap=bootstrap)
    comm.communicator.set_wait_timeout(1)
    input, weight = operand(4, 16, 0), operand(24, 16, 0)
    comm.gemm_all_reduce(input, weight)
    sentences = []
    for _ in range(2 if comm.my_rank == 0 else 0):
        with pytest.raises(mscclpp.Error) as caught:
            comm.gemm_all_reduce(input, weight)
        sentences.append(str(caught.value))
    comm.barrier()
    return sentences


def test_a_rank_that_does_not_call():
    first, second = run_threads(2, call_alone, timeout=60)[0]
    assert "rank 1" in first and second == first


def check_operators(comm, group):
    for name in NAMES:
        operator = getattr(torch.ops.mscclpp, name)
        for shape in SHAPES:
            check_values(comm, name, lambda input, weight: operator(input, weight, group), *shape)
        input, weight = operands(comm, name, 2, 24, 16)[comm.my_rank]
        wanted = operator(input, weight, group)
        assert torch.equal(wanted, getattr(comm, name)(input, weight))
        strided = input.t().contiguous().t(), weight.t().contiguous().t()
        assert torch.equal(operator(*strided, group), wanted)
        deeper = operator(input.reshape(-1, 1, 16), weight, group)
        assert torch.equal(deeper, wanted.reshape(-1, 1, 24))
        for sentence, wrong in {
            "and weight (24, 15)": lambda: operator(input, weight[:, 1:], group),
            "not bfloat16": lambda: operator(input.float(), weight.float(), group),
            "weight and input have different element types": lambda: operator(input, weight.half(), group),
            "no elements": lambda: operator(input, weight[:0], group),
            "no group is registered": lambda: operator(input, weight, "none"),
        }.items():
            with pytest.raises(mscclpp.InvalidUsage) as caught:
                wrong()
            assert sentence in str(caught.value), (sentence, caught.value)
        torch.library.opcheck(operator.default, (input, weight, group))
    with pytest.raises(mscclpp.InvalidUsage, match="is not divisible by the"):
        torch.ops.mscclpp.gemm_reduce_scatter(operand(1, 16, 0), operand(24, 16, 0), group)


def check_norms(comm, group):
    """Residual, norm and quantisation of the sums that the operators without them give."""
    for name in ("gemm_all_reduce", "gemm_reduce_scatter"):
        sum_of = getattr(torch.ops.mscclpp, name)
        norm_of = getattr(torch.ops.mscclpp, f"{name}_rms_norm")
        quantised_of = getattr(torch.ops.mscclpp, f"{name}_rms_norm_quantised")
        gain = operand(1, 144, 7)[0]
        for rows in (1, 3, 0):
            input, weight = operands(comm, name, rows, 144, 24)[comm.my_rank]
            sums = sum_of(input, weight, group)
            residual = operand(*sums.shape, 8 if name == "gemm_all_reduce" else 8 + comm.my_rank)
            for added in (residual, None):
                arguments = (input, weight, added, gain, group)
                normalised, new_residual = norm_of(*arguments, 1e-5)
                h = sums if added is None else (sums.float() + added.float()).bfloat16()
                assert torch.equal(new_residual, h)
                wanted = h.double() * (h.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain.double()
                assert normalised.dtype == torch.bfloat16 and normalised.shape == wanted.shape
                assert ((normalised.double() - wanted).abs() <= wanted.abs() * 2**-8 * 1.01).all()
                for quantisation in ("fp8_static", "fp8_per_row", "fp8_per_group", "int8_per_row"):
                    scale = torch.tensor([0.003]) if quantisation == "fp8_static" else None
                    found = quantised_of(*arguments, quantisation, scale, 1e-5)
                    expected = (*quantised_reference(normalised, quantisation, scale), h)
                    for each, exact in zip(found, expected):
                        assert each.dtype == exact.dtype and each.shape == exact.shape, (quantisation, each.shape)
                        assert torch.equal(each.view(torch.uint8), exact.view(torch.uint8)), quantisation
        input, weight = operands(comm, name, 2, 144, 24)[comm.my_rank]
        residual = torch.ones_like(sum_of(input, weight, group))
        strided = torch.empty(145).bfloat16()[1:].copy_(gain)
        first, _ = norm_of(input, weight, residual, gain, group)
        assert torch.equal(norm_of(input, weight, residual, strided, group)[0], first)
        for sentence, wrong in {
            "norm_weight has shape (143,): pass (144,)": lambda: norm_of(input, weight, None, gain[1:], group),
            "residual has shape (144,)": lambda: norm_of(input, weight, residual[0], gain, group),
            "norm_weight and input have different": lambda: norm_of(input, weight, None, gain.half(), group),
            "width 136": lambda: norm_of(input, weight[:136], None, gain[:136], group),
            "no quantisation 'fp4'": lambda: quantised_of(input, weight, None, gain, group, "fp4"),
            "pass scale, a tensor": lambda: quantised_of(input, weight, None, gain, group, "fp8_static"),
        }.items():
            with pytest.raises(mscclpp.InvalidUsage) as caught:
                wrong()
            assert sentence in str(caught.value), (sentence, caught.value)
        torch.library.opcheck(norm_of.default, (input, weight, residual, gain, group))
        torch.library.opcheck(quantised_of.default, (input, weight, None, gain, group, "fp8_per_group"))


def check_compiled(comm, group):
    """A layer of a transformer with sequence parallelism, in one graph."""
    ops = torch.ops.mscclpp

    def layer(x, up, down):
        inner = torch.nn.functional.silu(ops.all_gather_gemm(x, up, group))
        return ops.gemm_reduce_scatter(inner, down, group) + ops.gemm_all_reduce(x, x, group).sum()

    x = operand(4, 16, comm.my_rank)
    up, down = operand(32, 16, comm.my_rank + 10), operand(16, 32, comm.my_rank + 20)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (4, 2):
        assert torch.equal(compiled(x[:rows], up, down), layer(x[:rows], up, down))


def check_gradients(comm, group):
    """Those of the sum of all ranks' losses, each the sum of result * weights."""
    for name in NAMES:
        each = operands(comm, name, 2, 12, 20)
        input, weight = (tensor.clone().requires_grad_() for tensor in each[comm.my_rank])
        result = getattr(mscclpp.torch.functional, name)(input, weight, group)
        factors = operand(*result.shape, comm.my_rank + 50)
        (result * factors).sum().backward()
        # The same in double, of all ranks at once.
        leaves = [[tensor.double().requires_grad_() for tensor in pair] for pair in each]
        loss = 0
        for rank in range(comm.nranks):
            if name == "all_gather_gemm":
                whole = torch.cat([other for other, _ in leaves]) @ leaves[rank][1].t()
            else:
                whole = sum(a @ b.t() for a, b in leaves)
            if name == "gemm_reduce_scatter":
                whole = whole.chunk(comm.nranks)[rank]
            loss = loss + (whole * operand(*result.shape, rank + 50).double()).sum()
        loss.backward()
        for found, wanted in zip((input, weight), leaves[comm.my_rank]):
            torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=0.03, atol=0.15)
        function = getattr(mscclpp.torch.functional, name)
        only_input = each[comm.my_rank][0].clone().requires_grad_()
        function(only_input, each[comm.my_rank][1], group).backward(factors)
        assert torch.equal(only_input.grad, input.grad)

    def every(*pair):
        return sum(getattr(mscclpp.torch.functional, name)(*pair, group).float().square().sum() for name in NAMES)

    found = []
    for run in (every, torch.compile(every, fullgraph=True, backend="aot_eager")):
        leaves = operand(4, 20, comm.my_rank).requires_grad_(), operand(12, 20, 7).requires_grad_()
        run(*leaves).backward()
        found.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(*pair) for pair in zip(*found))


def with_operators(comm):
    torch.set_num_threads(1)
    group = mscclpp.torch.register(comm)
    check_operators(comm, group)
    check_norms(comm, group)
    check_compiled(comm, group)
    check_gradients(comm, group)
    return True


def test_operators():
    assert mscclpp.run(2, with_operators, timeout=300) == [True] * 2
