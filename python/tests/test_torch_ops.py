"""torch.ops.mscclpp on CPU ranks: values, errors, gradients, compilation."""

import ctypes
import gc
import pathlib
import shutil
import subprocess
import sys

import mscclpp
import pytest

from rank_threads import run_threads, single_rank
from test_fork import in_child

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", exc_type=ImportError)
ops = torch.ops.mscclpp

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, *INTEGERS)


def contribution(rank, shape=(4, 6)):
    """Small integers, which sum exactly in every type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + rank) % 3).reshape(shape)


def all_contributions(comm, shape=(4, 6)):
    return torch.stack([contribution(rank, shape) for rank in range(comm.nranks)])


def equal(result, expected, dtype):
    assert result.dtype == dtype and result.shape == expected.shape and result.is_contiguous()
    assert torch.equal(result.to(torch.float64), expected.to(torch.float64)), (result, expected)


def check_types(comm, group):
    total = all_contributions(comm).sum(0)
    part = slice(4 // comm.nranks * comm.my_rank, 4 // comm.nranks * (comm.my_rank + 1))
    for dtype in TYPES:
        tensor = contribution(comm.my_rank).to(dtype)
        equal(ops.all_reduce(tensor, group), total, dtype)
        equal(ops.reduce_scatter(tensor, group), total[part], dtype)
        equal(ops.all_gather(tensor, group), all_contributions(comm).reshape(-1, 6), dtype)
        equal(ops.broadcast(tensor, group, comm.nranks - 1), contribution(comm.nranks - 1), dtype)
        parts = [contribution(rank)[part] for rank in range(comm.nranks)]
        equal(ops.all_to_all(tensor, group), torch.cat(parts), dtype)
        equal(tensor, contribution(comm.my_rank), dtype)  # not changed


def check_operators(comm, group):
    every = all_contributions(comm).to(torch.float64) + 1
    tensor = every[comm.my_rank].clone()
    expected = {"sum": every.sum(0), "prod": every.prod(0), "max": every.amax(0), "min": every.amin(0)}
    expected["avg"] = every.mean(0)
    for op, result in expected.items():
        equal(ops.all_reduce(tensor, group, op), result, torch.float64)
        equal(ops.all_reduce(tensor, group, op=op), result, torch.float64)
        equal(ops.reduce_scatter(tensor, group, op), result.chunk(comm.nranks)[comm.my_rank], torch.float64)


def check_given_results(comm, group):
    every = all_contributions(comm).float()
    tensor = every[comm.my_rank].clone()
    mapped = comm.empty((4, 6), torch.float32)
    for out in (torch.empty(4, 6), mapped):
        out.copy_(tensor)
        assert ops.all_reduce_(out, group) is None
        equal(out, every.sum(0), torch.float32)
        out.copy_(tensor)
        ops.broadcast_(out, group, comm.nranks - 1)
        equal(out, every[-1], torch.float32)
        ops.all_to_all_into(out, tensor, group)
        equal(out, ops.all_to_all(tensor, group), torch.float32)
    gathered, part = torch.empty(4 * comm.nranks, 6), torch.empty(4 // comm.nranks, 6)
    ops.all_gather_into(gathered, tensor, group)
    equal(gathered, every.reshape(-1, 6), torch.float32)
    ops.reduce_scatter_into(part, tensor, group, "max")
    equal(part, every.amax(0).chunk(comm.nranks)[comm.my_rank], torch.float32)
    comm.free(mapped)


def check_shapes(comm, group):
    scalar = torch.tensor(float(comm.my_rank))
    equal(ops.all_reduce(scalar, group, "max"), torch.tensor(comm.nranks - 1.0), torch.float32)
    equal(ops.all_gather(scalar, group), torch.arange(comm.nranks), torch.float32)
    for shape in ((0,), (0, 5), (comm.nranks, 0)):
        empty = torch.empty(shape)
        assert ops.all_reduce(empty, group).shape == shape
        assert ops.all_to_all(empty, group).shape == shape
        assert ops.all_gather(empty, group).shape == (comm.nranks * shape[0], *shape[1:])
    for shape in ((6, 4), (3, 4, 4)):  # strides of the input do not matter
        transposed = contribution(comm.my_rank, shape).float().transpose(0, -1)
        equal(ops.all_reduce(transposed, group), all_contributions(comm, shape).sum(0).transpose(0, -1), torch.float32)
        equal(ops.all_to_all(transposed, group), ops.all_to_all(transposed.contiguous(), group), torch.float32)
        equal(ops.all_gather(transposed, group), ops.all_gather(transposed.contiguous(), group), torch.float32)


def check_fake_results(comm, group):
    tensor = torch.empty(4, 6, dtype=torch.int8, device="meta")
    results = ops.all_gather(tensor, group), ops.reduce_scatter(tensor, group), ops.all_reduce(tensor, group)
    for result, rows in zip(results, (4 * comm.nranks, 4 // comm.nranks, 4)):
        assert result.shape == (rows, 6) and result.dtype == torch.int8 and result.is_meta


def check_errors(comm, group):
    tensor = torch.ones(5, 2)
    wrong = {
        "no group is registered as 'other'": lambda: ops.all_reduce(tensor, "other"),
        "element type is not supported": lambda: ops.all_reduce(tensor.bool(), group),
        "unknown operator 'mean'": lambda: ops.all_reduce_(tensor, group, "mean"),
        "tensor is not contiguous": lambda: ops.all_reduce_(tensor.t(), group),
        "shape (5, 2) is not divisible": lambda: ops.reduce_scatter(tensor, group),
        "shape () is not divisible": lambda: ops.all_to_all(torch.tensor(1.0), group),
        f"root is {comm.nranks}": lambda: ops.broadcast(tensor, group, comm.nranks),
        "root is -1": lambda: ops.broadcast_(tensor, group, -1),
        "out has shape (5, 2), but the result": lambda: ops.all_gather_into(tensor, tensor, group),
        "out and tensor have different element types": lambda: ops.all_to_all_into(tensor.int(), tensor[:4], group),
        "overlap": lambda: ops.all_to_all_into(tensor[:4], tensor[:4], group),
        "weight (3,)": lambda: ops.all_reduce_rms_norm(tensor, None, torch.ones(3), group),
        "weight and tensor": lambda: ops.all_reduce_rms_norm(tensor, None, torch.ones(2).half(), group),
        "rows have 2 elements": lambda: ops.all_reduce_rms_norm(tensor, None, torch.ones(2), group),
        "double is not supported": lambda: ops.all_reduce_rms_norm(
            torch.ones(2, 8).double(), None, torch.ones(8).double(), group
        ),
        "residual has shape (2,)": lambda: ops.all_reduce_rms_norm(tensor, tensor[0], torch.ones(2), group),
        "not at a multiple of 16": lambda: ops.all_reduce_rms_norm_(
            torch.ones(33)[1:].reshape(4, 8), torch.ones(4, 8), torch.ones(8), group
        ),
    }
    for sentence, call in wrong.items():
        with pytest.raises(mscclpp.InvalidUsage) as caught:
            call()
        assert sentence in str(caught.value), (sentence, caught.value)
    equal(ops.all_reduce(tensor, group), comm.nranks * tensor, torch.float32)  # the group is still fit for use


def check_registration(comm, group):
    assert group == f"tensors:{comm.nranks}"
    with pytest.raises(mscclpp.InvalidUsage, match="is registered already"):
        mscclpp.torch.register(comm, "tensors")
    other = mscclpp.torch.register(comm)
    assert other != group and other != mscclpp.torch.register(comm)
    equal(ops.all_reduce(torch.ones(3), other), torch.full((3,), comm.nranks), torch.float32)


def check_mixed_calls(comm, group):
    """Operators and methods of the group share its collectives, in one order."""
    for step in range(20):
        tensor = torch.full((100 * step + 1,), float(step))
        assert torch.equal(ops.all_reduce(tensor, group), comm.all_reduce(tensor))


def check_gradients(comm, group):
    generator = torch.Generator().manual_seed(comm.my_rank)
    f = mscclpp.torch.functional

    def gradient_of(function, shape, result_shape):
        """The gradient of sum(w * y), and the weights w of all ranks."""
        tensor = torch.randn(shape, generator=generator, requires_grad=True)
        weights = torch.randn(result_shape, generator=generator)
        (function(tensor) * weights).sum().backward()
        return tensor.grad, ops.all_gather(weights[None], group)

    n, r = comm.nranks, comm.my_rank
    gradient, weights = gradient_of(lambda x: f.all_reduce(x, group), (3, 2), (3, 2))
    torch.testing.assert_close(gradient, weights.sum(0))
    gradient, weights = gradient_of(lambda x: f.all_reduce(x, group, "avg"), (3, 2), (3, 2))
    torch.testing.assert_close(gradient, weights.mean(0))
    gradient, weights = gradient_of(lambda x: f.all_gather(x, group), (3, 2), (3 * n, 2))
    torch.testing.assert_close(gradient, weights.sum(0)[3 * r : 3 * r + 3])
    gradient, weights = gradient_of(lambda x: f.all_gather(x, group), (), (n,))
    torch.testing.assert_close(gradient, weights.sum(0)[r])
    gradient, weights = gradient_of(lambda x: f.reduce_scatter(x, group), (3 * n, 2), (3, 2))
    torch.testing.assert_close(gradient, weights.reshape(-1, 2))
    gradient, weights = gradient_of(lambda x: f.reduce_scatter(x, group, "avg"), (3 * n, 2), (3, 2))
    torch.testing.assert_close(gradient, weights.reshape(-1, 2) / n)
    gradient, weights = gradient_of(lambda x: f.all_to_all(x, group), (3 * n, 2), (3 * n, 2))
    torch.testing.assert_close(gradient, weights[:, 3 * r : 3 * r + 3].reshape(-1, 2))
    with pytest.raises(mscclpp.InvalidUsage, match="has no gradient"):
        f.all_reduce(torch.ones(2), group, "max")
    # An operator says that it has none.
    tensor = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="mscclpp::all_reduce"):
        ops.all_reduce(tensor, group).sum().backward()


def norm_reference(comm, inputs, residual, weight, epsilon):
    """In double: the new residual and the normalised rows, each with its bound.

    u is half the distance from 1 to the next number of the type. The sum and the new residual are rounded once each;
    their relative error over a row moves the factor of the row as much; the norm is rounded once. In fp32 are the sum
    over the ranks, and that of the squares: at most hidden / 4 + 8 additions of positive numbers, whose square root has
    half the relative error. Each rounding of a number below the smallest normal one has an error of up to `tiny`.
    """
    u = torch.finfo(inputs.dtype).eps / 2
    tiny = u * torch.finfo(inputs.dtype).smallest_normal
    total = inputs.double().sum(0)
    h = total + residual.double() if residual is not None else total
    error = 1.1 * (u * (total.abs() + h.abs()) + 2 * tiny + 2**-23 * inputs.double().abs().sum(0))
    square = h.square().mean(-1, keepdim=True)
    factor = (square + epsilon).rsqrt()
    row_error = error.square().mean(-1, keepdim=True).sqrt() * factor + 2**-24 * (h.shape[-1] / 8 + 8)
    normalised = h * factor * weight.double()
    bound = weight.double().abs() * factor * (error + 1.1 * h.abs() * row_error) + u * normalised.abs() + tiny
    return h, error, normalised, 1.05 * bound


def check_norm(comm, group):
    # One row; one shot; with 4 ranks two shots; longer than the scratch, with a last part of one row.
    for dtype, rows, hidden in (
        (torch.float32, 1, 4),
        (torch.bfloat16, 9, 256),
        (torch.float16, 3, 16384),
        (torch.bfloat16, 21, 4096),
        (torch.float32, 17, 4096),
        (torch.float16, 0, 64),
    ):
        generator = torch.Generator().manual_seed(rows)  # the same on all ranks
        inputs = torch.randn((comm.nranks, rows, hidden), generator=generator).to(dtype)
        residual = torch.randn((rows, hidden), generator=generator).to(dtype)
        weight = torch.randn(hidden, generator=generator).to(dtype)
        tensor = inputs[comm.my_rank].clone()
        for added in (residual, None):
            normalised, new_residual = ops.all_reduce_rms_norm(tensor, added, weight, group, 1e-5)
            h, h_bound, y, y_bound = norm_reference(comm, inputs, added, weight, 1e-5)
            assert normalised.dtype == new_residual.dtype == dtype and normalised.shape == (rows, hidden)
            assert ((new_residual.double() - h).abs() <= h_bound).all()
            assert ((normalised.double() - y).abs() <= y_bound).all()
            bits = ops.all_gather(torch.stack([normalised, new_residual]).view(torch.uint8)[None], group)
            assert (bits == bits[0]).all()  # the same on all ranks
            if added is None:
                continue
            in_place, residual_in_place = tensor.clone(), residual.clone()
            ops.all_reduce_rms_norm_(in_place, residual_in_place, weight, group, 1e-5)
            assert torch.equal(in_place, normalised) and torch.equal(residual_in_place, new_residual)
            strided = torch.empty(hidden, rows, dtype=dtype).t().copy_(tensor)
            shifted = torch.empty(rows * hidden + 1, dtype=dtype)[1:].reshape(rows, hidden).copy_(residual)
            again, _ = ops.all_reduce_rms_norm(strided, shifted, weight, group, 1e-5)
            assert torch.equal(again, normalised)
    # More dimensions, and the default of epsilon.
    tensor = torch.ones(2, 3, 8)
    normalised, _ = ops.all_reduce_rms_norm(tensor, None, torch.ones(8), group)
    torch.testing.assert_close(normalised, torch.ones(2, 3, 8))


def quantised_reference(normalised, quantisation, scale):
    """The quantised rows and their scales, from the normalised ones, to the bit."""
    largest, dtype = (127, torch.int8) if quantisation == "int8_per_row" else (448, torch.float8_e4m3fn)
    values = normalised.float()
    groups = values.split(128, -1) if quantisation == "fp8_per_group" else [values]
    scales = []
    for group in groups:
        largest_magnitude = group.abs().amax(-1, keepdim=True)
        scales.append((largest_magnitude / largest).clamp(min=torch.finfo(torch.float32).tiny))
    if scale is not None:
        scales = [scale.expand(*values.shape[:-1], 1)]
    scaled = torch.cat([group * each.reciprocal() for group, each in zip(groups, scales)], -1)
    rounded = scaled.round() if dtype == torch.int8 else scaled
    return rounded.clamp(-largest, largest).to(dtype), torch.cat(scales, -1) if scale is None else torch.empty(0)


def check_quantised_norm(comm, group):
    # Groups with a shorter last one; two shots with 4 ranks; longer than the scratch, with an odd number of rows.
    for dtype, rows, hidden in (
        (torch.bfloat16, 5, 200),
        (torch.float16, 9, 256),
        (torch.bfloat16, 35, 4104),
        (torch.float16, 0, 64),
    ):
        generator = torch.Generator().manual_seed(rows)
        inputs = torch.randn((comm.nranks, rows, hidden), generator=generator).to(dtype)
        residual = torch.randn((rows, hidden), generator=generator).to(dtype)
        weight = torch.randn(hidden, generator=generator).to(dtype)
        tensor = inputs[comm.my_rank].clone()
        normalised, wanted_residual = ops.all_reduce_rms_norm(tensor, residual, weight, group)
        for quantisation in ("fp8_static", "fp8_per_row", "fp8_per_group", "int8_per_row"):
            scale = torch.tensor([0.003]) if quantisation == "fp8_static" else None  # limits the largest values
            found = ops.all_reduce_rms_norm_quantised(tensor, residual, weight, group, quantisation, scale)
            wanted = quantised_reference(normalised, quantisation, scale)
            for each, expected in zip(found, (*wanted, wanted_residual)):
                assert each.dtype == expected.dtype and each.shape == expected.shape, (quantisation, each.shape)
                assert torch.equal(each.view(torch.uint8), expected.view(torch.uint8)), (quantisation, dtype, rows)
    tensor, weight = torch.ones(2, 16).half(), torch.ones(16).half()
    scale = torch.ones(1)
    call = ops.all_reduce_rms_norm_quantised
    wrong = {
        "no quantisation 'fp4'": lambda: call(tensor, None, weight, group, "fp4"),
        "pass scale, a tensor": lambda: call(tensor, None, weight, group, "fp8_static"),
        "fp8_per_row computes its scales": lambda: call(tensor, None, weight, group, "fp8_per_row", scale),
        "no tensor of one float32": lambda: call(tensor, None, weight, group, "fp8_static", scale.half()),
        "float are not quantised": lambda: call(tensor.float(), None, weight.float(), group, "int8_per_row"),
    }
    for sentence, function in wrong.items():
        with pytest.raises(mscclpp.InvalidUsage) as caught:
            function()
        assert sentence in str(caught.value), (sentence, caught.value)


def check_fp8(comm, group):
    # The errors that AllReduceFp8 states; shorter and longer than the scratch; all ranks have the same bits.
    for dtype, count in ((torch.float32, 70001), (torch.bfloat16, 300), (torch.float16, 1), (torch.bfloat16, 140000)):
        generator = torch.Generator().manual_seed(count)
        inputs = torch.randn((comm.nranks, count), generator=generator).to(dtype)
        tensor = inputs[comm.my_rank].clone()
        result = ops.all_reduce_fp8(tensor, group)
        padded = torch.nn.functional.pad(inputs.double(), (0, -count % 128)).view(comm.nranks, -1, 128)
        total = padded.sum(0)
        e = padded.abs().amax(-1).sum(0) / 28
        bound = e + (total.abs().amax(-1) + e) / 28
        bound = bound[:, None] + 2**-8 * total.abs() + 1e-6
        error = (result.double() - total.view(-1)[:count]).abs()
        assert result.dtype == dtype and (error <= bound.view(-1)[:count]).all()
        if count > 128:
            assert error.max() > 0  # it was sent in 8 bits
        bits = ops.all_gather(result.view(torch.uint8)[None], group)
        assert (bits == bits[0]).all()
        ops.all_reduce_fp8_(tensor, group)
        assert torch.equal(tensor, result)
        strided = torch.stack([inputs[comm.my_rank]] * 2, 1)[:, 1]
        assert torch.equal(ops.all_reduce_fp8(strided, group), result)
    assert ops.all_reduce_fp8(torch.ones(0), group).shape == (0,)
    for sentence, call in {
        "int32 is not supported": lambda: ops.all_reduce_fp8(torch.ones(4, dtype=torch.int32), group),
        "not contiguous": lambda: ops.all_reduce_fp8_(torch.ones(4, 4).t()[:2], group),
    }.items():
        with pytest.raises(mscclpp.InvalidUsage, match=sentence):
            call()


def check_values(comm):
    torch.set_num_threads(1)
    group = mscclpp.torch.register(comm, "tensors")
    for check in (
        check_registration,
        check_types,
        check_operators,
        check_given_results,
        check_shapes,
        check_fake_results,
        check_mixed_calls,
        check_gradients,
        check_norm,
        check_quantised_norm,
        check_fp8,
    ):
        check(comm, group)
    if comm.nranks > 1:  # one rank has parts of any shape
        check_errors(comm, group)
    comm.close()
    with pytest.raises(mscclpp.InvalidUsage, match="or it has been closed"):
        ops.all_reduce(torch.ones(1), group)
    with pytest.raises(mscclpp.InvalidUsage, match="the group is closed"):
        mscclpp.torch.register(comm, "closed")
    with pytest.raises(mscclpp.InvalidUsage, match="no group is registered"):
        ops.all_reduce(torch.ones(1), f"closed:{comm.nranks}")
    return True


def test_values_of_one_rank():
    assert check_values(single_rank())


@pytest.mark.parametrize("ranks", [2, 4])
def test_values(ranks):
    assert mscclpp.run(ranks, check_values, timeout=300) == [True] * ranks


def test_a_group_that_is_no_longer_referenced():
    comm = single_rank()
    name = mscclpp.torch.register(comm)
    tensor = ops.all_reduce(torch.ones(2), name)
    del comm
    gc.collect()
    with pytest.raises(mscclpp.InvalidUsage, match="no group is registered"):
        ops.all_reduce(tensor, name)


def check_in_thread(bootstrap):
    with mscclpp.CommGroup(bootstrap=bootstrap) as comm:
        group = mscclpp.torch.register(comm, f"thread{comm.my_rank}")
        check_types(comm, group)
        check_norm(comm, group)


def test_operators_release_the_interpreter():
    run_threads(2, check_in_thread, timeout=120)


def layer(group):
    """A function that has all kinds of operators in it."""

    def function(x, weight):
        y = ops.all_reduce(x * 2, group)
        y = y + 1
        ops.all_reduce_(y, group, "max")
        z = ops.reduce_scatter(ops.all_gather(y, group), group, "avg")
        z = ops.all_to_all(z, group) + ops.broadcast(x, group, 1)
        out = torch.empty_like(z)
        ops.all_to_all_into(out, z, group)
        normalised, residual = ops.all_reduce_rms_norm(out, x, weight, group)
        ops.all_reduce_rms_norm_(normalised, residual, weight, group)
        return normalised.sin(), residual

    return function


def check_compiled(comm):
    group = mscclpp.torch.register(comm, "compiled")
    function = layer(group)
    weight = torch.linspace(0.5, 2, 8)
    for backend, dynamic in (("eager", False), ("aot_eager", False), ("aot_eager", True)):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
        for rows in (4, 8):
            x = contribution(comm.my_rank, (rows, 8)).float()
            torch.testing.assert_close(compiled(x.clone(), weight), function(x.clone(), weight), rtol=0, atol=0)

    def with_gradient(x):
        return mscclpp.torch.functional.all_reduce(mscclpp.torch.functional.all_gather(x * x, group), group)

    results = []
    for run in (with_gradient, torch.compile(with_gradient, fullgraph=True, backend="aot_eager")):
        x = contribution(comm.my_rank).float().requires_grad_()
        run(x).sum().backward()
        results.append(x.grad)
    assert torch.equal(*results) and results[0].abs().sum() > 0


def check_schemas(comm):
    group = mscclpp.torch.register(comm, "schemas")
    x, weight = torch.randn(4, 8), torch.ones(8)
    calls = {
        "all_reduce": (x, group, "max"),
        "all_reduce_": (x.clone(), group),
        "all_reduce_fp8": (x, group),
        "all_reduce_fp8_": (x.clone(), group),
        "all_gather": (x, group),
        "all_gather_into": (torch.empty(8, 8), x, group),
        "reduce_scatter": (x, group),
        "reduce_scatter_into": (torch.empty(2, 8), x, group),
        "all_to_all": (x.t(), group),
        "all_to_all_into": (torch.empty(4, 8), x, group),
        "broadcast": (x, group, 1),
        "broadcast_": (x.clone(), group),
        "all_reduce_rms_norm": (x.t().contiguous().t(), None, weight, group),
        "all_reduce_rms_norm_": (x.clone(), x.clone(), weight, group),
        "all_reduce_rms_norm_quantised": (x.half(), None, weight.half(), group, "fp8_per_group"),
    }
    defined = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("mscclpp::")}
    reductions = ("gemm_all_reduce", "gemm_reduce_scatter")  # test_fused_gemms.py
    norms = {f"{name}_rms_norm{suffix}" for name in reductions for suffix in ("", "_quantised")}
    elsewhere = {"all_gather_gemm", *reductions, *norms}
    assert defined == {f"mscclpp::{name}" for name in {*calls, *elsewhere}}
    for name, arguments in calls.items():
        torch.library.opcheck(getattr(ops, name).default, arguments)


def check_compilation(comm):
    torch.set_num_threads(1)
    check_compiled(comm)
    check_schemas(comm)
    return True


def test_compilation():
    """No graph breaks; schemas and fake kernels tell what the operators do."""
    assert mscclpp.run(2, check_compilation, timeout=600) == [True, True]


def check_inductor(comm):
    group = mscclpp.torch.register(comm, "inductor")

    def function(x):
        y = x + comm.my_rank
        ops.all_reduce_(y, group)
        return ops.all_reduce(y * 2, group, "max") - x

    x = torch.arange(6.0)
    result = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(result, function(x), rtol=0, atol=0)
    return result.tolist()


def check_unused_results(comm):
    group = mscclpp.torch.register(comm, "unused")
    x = torch.full((4, 8), comm.my_rank + 1.0, dtype=torch.bfloat16)
    weight = torch.eye(8, dtype=torch.bfloat16)

    def function(x):
        load = ops.gemm_all_reduce(x * 100, weight, group) + ops.all_reduce(x * 100, group)  # rank 0 alone returns it
        y = ops.gemm_all_reduce(x, weight, group) + ops.all_reduce(x, group)
        return (y, load) if comm.my_rank == 0 else (y,)

    return torch.all(torch.compile(function, fullgraph=True, backend="aot_eager")(x)[0] == 6).item()


def test_unused_results():
    """The calls that make them are compiled all the same: another rank waits for them."""
    assert mscclpp.run(2, check_unused_results, timeout=600) == [True, True]


def test_inductor():
    expected = [4 * x + 2 - x for x in range(6)]
    assert mscclpp.run(2, check_inductor, timeout=600) == [expected, expected]


def fork_from_rank(comm):
    group = mscclpp.torch.register(comm)
    ops.all_reduce(torch.ones(3), group)
    text = in_child(lambda: ops.all_reduce(torch.ones(3), group))
    return text, ops.all_reduce(torch.ones(3), group).tolist()


def test_fork():
    ((text, result),) = mscclpp.run(1, fork_from_rank, timeout=60)
    assert "InvalidUsage: this process was forked from the rank" in text and result == [1, 1, 1], text


def test_only_the_stable_abi_is_imported():
    names = shutil.which("nm")
    if names is None:
        pytest.skip("no nm: install binutils")
    command = [names, "-D", "--undefined-only", mscclpp.torch.ops.LIBRARY]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = [line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()]
    torch_names = [name for name in imported if name.startswith(("aoti_torch_", "torch_"))]
    assert "torch_library_impl" in torch_names
    unstable = ("3c10", "2at", "5torch", "8pybind11")  # namespaces, as they are in symbols
    assert not [name for name in imported if name.startswith("Py") or any(part in name for part in unstable)]
    # Functions for single operators of ATen change with PyTorch.
    single_operators = ("aoti_torch_cpu_", "aoti_torch_cuda_", "aoti_torch_aten_")
    assert not [name for name in torch_names if name.startswith(single_operators)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_memory_pool_without_gpu():
    with pytest.raises(mscclpp.InvalidUsage, match="PyTorch finds none"):
        mscclpp.torch.mem_pool()
    library = ctypes.CDLL(mscclpp.torch.ops.LIBRARY)
    library.mscclpp_allocate.restype = ctypes.c_void_p
    assert library.mscclpp_allocate(ctypes.c_ssize_t(1024), 0, None) is None
    library.mscclpp_free(None, ctypes.c_ssize_t(1024), 0, None)


def test_the_example():
    program = pathlib.Path(__file__).parents[2] / "examples" / "python" / "02_torch_compile.py"
    finished = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert finished.stdout == "rank 0 of 2: right\nrank 1 of 2: right\n", finished.stderr
