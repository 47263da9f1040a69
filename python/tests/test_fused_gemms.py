"""Matrix multiplications with communication inside on CPU ranks, as methods of a group and as operators of PyTorch."""

import functools

import mscclpp
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", exc_type=ImportError)

from gemm_reference import operand, product, require_close, scales_of  # noqa: E402
from rank_threads import run_threads, single_rank  # noqa: E402
from test_torch_ops import quantised_reference  # noqa: E402

NAMES = ("gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm")
FP8, FP8_TYPE = torch.float8_e4m3fn, mscclpp.DataType.float8_e4m3fn
TYPES = (torch.bfloat16, FP8)
# Parts of rows (of a rank, where they are divided), width, depth. The second row needs scratch of its own, the fourth
# one for more rows.
SHAPES = ((3, 24, 16), (1, 24, 40), (2, 7, 33), (90, 24, 16))


def operands(comm, name, rows, width, depth, dtype=torch.bfloat16):
    """(input, weight, scales) of each rank. scales: arguments, none with bfloat16."""
    gathers = name == "all_gather_gemm"
    count = rows if gathers else rows * comm.nranks
    each = []
    for rank in range(comm.nranks):
        scales = {}
        if dtype == FP8:
            scales["input_scales"] = scales_of(count, 200 + rank)
            scales["weight_scales"] = scales_of(width, rank + 300)
        each.append((operand(count, depth, rank, dtype), operand(width, depth, rank + 100, dtype), scales))
    return each


def check_values(comm, name, call, rows, width, depth, dtype):
    each = operands(comm, name, rows, width, depth, dtype)
    input, weight, scales = each[comm.my_rank]
    result = call(input, weight, **scales)
    if name == "all_gather_gemm":
        if scales:
            scales["input_scales"] = torch.cat([other["input_scales"] for _, _, other in each])
        require_close(result, [product(torch.cat([other for other, _, _ in each]), weight, **scales)])
        return
    products = [product(a, b, **factors) for a, b, factors in each]
    if name == "gemm_reduce_scatter":
        part = slice(rows * comm.my_rank, rows * (comm.my_rank + 1))
        products = [(exact[part], bound[part]) for exact, bound in products]
    require_close(result, products)
    if name == "gemm_all_reduce":
        bits = comm.all_gather(result.view(torch.int16)[None])
        assert (bits == bits[0]).all()  # the same on all ranks


def check_errors(wrong):
    """Whether the calls raise errors with these sentences."""
    for sentence, call in wrong.items():
        with pytest.raises(mscclpp.InvalidUsage) as caught:
            call()
        assert sentence in str(caught.value), (sentence, caught.value)


def check_scales(comm, name, call):
    """The shapes of scales, and errors. `call` takes input and weight, and the scales by name."""
    input, weight, scales = operands(comm, name, 2, 24, 16, FP8)[comm.my_rank]
    inputs, weights = scales.values()
    rows = len(inputs)

    def scaled(input_scales, weight_scales=weights, input=input):
        return call(input, weight, input_scales=input_scales, weight_scales=weight_scales)

    wanted = scaled(inputs)
    assert torch.equal(scaled(inputs[:, None], weights[:, None]), wanted)
    assert torch.equal(scaled(inputs[:, None], weights[None]), wanted)
    assert torch.equal(scaled(inputs[:, None, None], input=input[:, None]), wanted[:, None])
    assert torch.equal(call(input, weight, **scales, use_fast_accum=True), wanted)  # on CPUs
    plain = input.bfloat16(), weight.bfloat16()
    check_errors(
        {
            "float8_e4m3fn need scales: pass input_scales and weight_scales": lambda: call(input, weight),
            "operands of float8_e4m3fn need scales": lambda: scaled(inputs, None),
            "operands of bfloat16 have no scales: leave": lambda: call(*plain, **scales),
            "operands of bfloat16 have no scales": lambda: call(*plain, weight_scales=weights),
            "operands of bfloat16 are summed up in fp32: leave": lambda: call(*plain, use_fast_accum=True),
            f"input_scales have shape (1,): pass ({rows},), one for each row of input": lambda: scaled(inputs[:1]),
            f"input_scales have shape (1, {rows})": lambda: scaled(inputs[None]),
            "weight_scales have shape (23,): pass (24,), one for each row of weight": lambda: scaled(
                inputs, weights[1:]
            ),
            "input_scales are not float32: convert": lambda: scaled(inputs.double()),
            "weight_scales are not float32: convert": lambda: scaled(inputs, weights.bfloat16()),
        }
    )


def check_numpy(comm):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in NAMES:
        for dtype, numpy_type in zip(TYPES, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)):
            input, weight, scales = operands(comm, name, 4, 24, 16, dtype)[comm.my_rank]
            wanted = getattr(comm, name)(input, weight, **scales)
            arrays = [tensor.view(torch.uint8).numpy().view(numpy_type) for tensor in (input, weight)]
            found = getattr(comm, name)(*arrays, **{key: value.numpy() for key, value in scales.items()})
            assert found.dtype == ml_dtypes.bfloat16 and found.shape == tuple(wanted.shape)
            assert torch.equal(torch.from_numpy(found.astype("float32")), wanted.float())


def check_addresses(comm):
    input, weight, scales = operands(comm, "gemm_all_reduce", 2, 24, 16, FP8)[comm.my_rank]
    wanted = comm.gemm_all_reduce(input, weight, **scales)
    found = torch.zeros_like(wanted)
    arguments = [each.data_ptr() for each in (input, weight, found)] + [len(input), 24, 16]
    gemms, collective = comm.fused_gemms(mscclpp.DeviceType.CPU), mscclpp.GemmCollective.all_reduce
    addresses = {key: each.data_ptr() for key, each in scales.items()}
    gemms.run(collective, *arguments, 0, FP8_TYPE, **addresses)
    assert torch.equal(found, wanted)
    sizes = (collective, len(input), 24, 16)
    fused = mscclpp.GemmForm.fused
    assert gemms.form(*sizes, FP8_TYPE) == gemms.form(collective, 64, 24, 9, FP8_TYPE) == fused
    assert gemms.form(*sizes, FP8_TYPE, has_norm=True) is None
    unmade = ((len(input), 24, 17), (1025, 24, 16))
    assert all(gemms.form(collective, *each, FP8_TYPE) is None for each in unmade)
    check_errors(
        {
            "weightScales": lambda: gemms.run(collective, *arguments, 0, FP8_TYPE, addresses["input_scales"]),
            "scales of a layer of bfloat16": lambda: gemms.run(collective, *arguments, **addresses),
            "FLOAT8_E4M3FN": lambda: gemms.run(collective, *arguments, operands=mscclpp.DataType.float32),
        }
    )


def check_arrays(comm):
    for name in NAMES:
        call = getattr(comm, name)
        for dtype in TYPES:
            for shape in SHAPES:
                check_values(comm, name, call, *shape, dtype)
            input, weight, scales = operands(comm, name, 2, 24, 16, dtype)[comm.my_rank]
            wanted = call(input, weight, **scales)
            out = torch.full_like(wanted, 7)
            assert call(input, weight, out=out, **scales) is out and torch.equal(out, wanted)
            deeper = input.reshape(-1, 1, 16)  # more dimensions
            assert torch.equal(call(deeper, weight, **scales).squeeze(1), wanted)
            if dtype == FP8:
                scales["input_scales"] = scales["input_scales"][:0]
            nothing = call(input[:0], weight, **scales)
            assert nothing.shape == (0, 24) and nothing.dtype == torch.bfloat16
        check_scales(comm, name, call)
        eight_bits, one = (input, weight, None, None), torch.ones(1)
        input, weight, _ = operands(comm, name, 2, 24, 16)[comm.my_rank]
        check_errors(
            {
                "and weight (24, 15)": lambda: call(input, weight[:, 1:].contiguous()),
                "and weight (16,)": lambda: call(input, weight[0]),
                "at least one element": lambda: call(input, weight[:0]),
                "input has elements of float32": lambda: call(input.float(), weight),
                "input has elements of float8_e5m2": lambda: call(input.to(torch.float8_e5m2), weight),
                "weight has elements of float16": lambda: call(input, weight.half()),
                "weight has elements of float8_e4m3fn, and input of bfloat16": lambda: call(input, weight.to(FP8)),
                "out has shape": lambda: call(input, weight, out=torch.empty(1, 24).bfloat16()),
                "out has elements of float32": lambda: call(input, weight, out=wanted.float()),
                "input is not contiguous": lambda: call(input.t(), weight),
                "input_scales is not contiguous": lambda: call(*eight_bits, one.expand(2 * comm.nranks), one),
                "input_scales is on device meta: move it": lambda: call(*eight_bits, one.to("meta"), one),
            }
        )
    if comm.nranks > 1:
        with pytest.raises(mscclpp.InvalidUsage, match="is not divisible by the"):
            comm.gemm_reduce_scatter(operand(1, 16, 0), operand(24, 16, 0))
    check_addresses(comm)
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


def check_registered(operator, arguments, scales):
    """What compilers know of an operator: its schema, and the shapes and types of its results."""
    tests = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    if not scales:  # it compares arguments by a function that PyTorch does not have for fp8
        tests += ("test_schema",)
    torch.library.opcheck(operator.default, arguments, scales, test_utils=tests)


def check_operators(comm, group):
    for name in NAMES:
        operator = getattr(torch.ops.mscclpp, name)
        call = functools.partial(operator, group=group)
        for dtype in TYPES:
            for shape in SHAPES:
                check_values(comm, name, call, *shape, dtype)
            input, weight, scales = operands(comm, name, 2, 24, 16, dtype)[comm.my_rank]
            wanted = call(input, weight, **scales)
            assert torch.equal(wanted, getattr(comm, name)(input, weight, **scales))
            strided = input.t().contiguous().t(), weight.t().contiguous().t()
            strided_scales = {key: each.repeat_interleave(2)[::2] for key, each in scales.items()}
            assert torch.equal(call(*strided, **strided_scales), wanted)
            deeper = call(input.reshape(-1, 1, 16), weight, **scales)
            assert torch.equal(deeper, wanted.reshape(-1, 1, 24))
            check_registered(operator, (input, weight, group), scales)
        check_scales(comm, name, call)
        input, weight, _ = operands(comm, name, 2, 24, 16)[comm.my_rank]
        check_errors(
            {
                "and weight (24, 15)": lambda: operator(input, weight[:, 1:], group),
                "neither bfloat16 nor float8_e4m3fn": lambda: operator(input.float(), weight.float(), group),
                "weight and input have different element types": lambda: operator(input, weight.to(FP8), group),
                "no elements": lambda: operator(input, weight[:0], group),
                "no group is registered": lambda: operator(input, weight, "none"),
            }
        )
    with pytest.raises(mscclpp.InvalidUsage, match="is not divisible by the"):
        torch.ops.mscclpp.gemm_reduce_scatter(operand(1, 16, 0), operand(24, 16, 0), group)


def check_norms(comm, group, dtype):
    """Residual, norm and quantisation of the sums that the operators without them give."""
    for name in ("gemm_all_reduce", "gemm_reduce_scatter"):
        sum_of = getattr(torch.ops.mscclpp, name)
        norm_of = getattr(torch.ops.mscclpp, f"{name}_rms_norm")
        quantised_of = getattr(torch.ops.mscclpp, f"{name}_rms_norm_quantised")
        gain = operand(1, 144, 7)[0]
        for rows in (1, 3, 0):
            input, weight, scales = operands(comm, name, rows, 144, 24, dtype)[comm.my_rank]
            sums = sum_of(input, weight, group, **scales)
            residual = operand(*sums.shape, 8 if name == "gemm_all_reduce" else 8 + comm.my_rank)
            for added in (residual, None):
                arguments = (input, weight, added, gain, group)
                normalised, new_residual = norm_of(*arguments, 1e-5, **scales)
                h = sums if added is None else (sums.float() + added.float()).bfloat16()
                assert torch.equal(new_residual, h)
                wanted = h.double() * (h.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain.double()
                assert normalised.dtype == torch.bfloat16 and normalised.shape == wanted.shape
                assert ((normalised.double() - wanted).abs() <= wanted.abs() * 2**-8 * 1.01).all()
                for quantisation in ("fp8_static", "fp8_per_row", "fp8_per_group", "int8_per_row"):
                    scale = torch.tensor([0.003]) if quantisation == "fp8_static" else None
                    found = quantised_of(*arguments, quantisation, scale, 1e-5, **scales)
                    expected = (*quantised_reference(normalised, quantisation, scale), h)
                    for each, exact in zip(found, expected):
                        assert each.dtype == exact.dtype and each.shape == exact.shape, (quantisation, each.shape)
                        assert torch.equal(each.view(torch.uint8), exact.view(torch.uint8)), quantisation
        input, weight, scales = operands(comm, name, 2, 144, 24, dtype)[comm.my_rank]
        residual = torch.ones_like(sum_of(input, weight, group, **scales))
        strided = torch.empty(145).bfloat16()[1:].copy_(gain)
        first, _ = norm_of(input, weight, residual, gain, group, **scales)
        assert torch.equal(norm_of(input, weight, residual, strided, group, **scales)[0], first)

        def call(added, norm_weight, *quantisation, columns=144):
            operator = quantised_of if quantisation else norm_of
            cut = {key: each[:columns] for key, each in scales.items()}
            return operator(input, weight[:columns], added, norm_weight, group, *quantisation, **cut)

        check_errors(
            {
                "norm_weight has shape (143,): pass (144,)": lambda: call(None, gain[1:]),
                "residual has shape (144,)": lambda: call(residual[0], gain),
                "norm_weight is not bfloat16": lambda: call(None, gain.half()),
                "residual is not bfloat16": lambda: call(residual.to(FP8), gain),
                "width 136": lambda: call(None, gain[:136], columns=136),
                "no quantisation 'fp4'": lambda: call(None, gain, "fp4"),
                "pass scale, a tensor": lambda: call(None, gain, "fp8_static"),
            }
        )
        if dtype == FP8:
            check_errors({"need scales": lambda: norm_of(input, weight, residual, gain, group)})
            fast = {**scales, "use_fast_accum": True}  # on CPUs the same
            assert torch.equal(norm_of(input, weight, residual, gain, group, **fast)[0], first)
            arguments = (input, weight, residual, gain, group, "fp8_per_row")
            pairs = zip(quantised_of(*arguments, **fast), quantised_of(*arguments, **scales))
            assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)
        else:
            wrong = lambda: norm_of(input, weight, residual, gain, group, use_fast_accum=True)  # noqa: E731
            check_errors({"leave use_fast_accum out": wrong})
        check_registered(norm_of, (input, weight, residual, gain, group), scales)
        check_registered(quantised_of, (input, weight, None, gain, group, "fp8_per_group"), scales)


def check_compiled(comm, group):
    """A layer of a transformer with sequence parallelism, in one graph."""
    ops = torch.ops.mscclpp

    def quantised(tensor):
        scales = tensor.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448
        return (tensor / scales).to(FP8), scales

    def layer(x, up, down, dtype):
        if dtype == FP8:
            (x, of_x), (up, of_up), (down, of_down) = quantised(x), quantised(up), quantised(down)
            inner = ops.all_gather_gemm(x, up, group, of_x, of_up.t())
            inner, of_inner = quantised(torch.nn.functional.silu(inner))
            part = ops.gemm_reduce_scatter(inner, down, group, of_inner, of_down)
            return part + ops.gemm_all_reduce(x, x, group, of_x, of_x).sum()
        inner = torch.nn.functional.silu(ops.all_gather_gemm(x, up, group))
        return ops.gemm_reduce_scatter(inner, down, group) + ops.gemm_all_reduce(x, x, group).sum()

    x = operand(4, 16, comm.my_rank)
    up, down = operand(32, 16, comm.my_rank + 10), operand(16, 32, comm.my_rank + 20)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for dtype in TYPES:
        for rows in (4, 2):
            assert torch.equal(compiled(x[:rows], up, down, dtype), layer(x[:rows], up, down, dtype))


def check_gradients(comm, group):
    """Those of the sum of all ranks' losses, each the sum of result * weights."""
    for name in NAMES:
        each = [pair for *pair, _ in operands(comm, name, 2, 12, 20)]
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
    for dtype in TYPES:
        check_norms(comm, group, dtype)
    check_compiled(comm, group)
    check_gradients(comm, group)
    return True


def test_operators():
    assert mscclpp.run(2, with_operators, timeout=300) == [True] * 2
