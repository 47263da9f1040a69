"""Every collective over CPU ranks as processes, against numpy."""

import mscclpp
import numpy as np
import pytest

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def numpy_dtype(name):
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    return np.dtype(name)


def contribution(rank, count, dtype, seed):
    """Small integers, whose sums are exact in every type but fp8."""
    return np.random.default_rng([seed, rank]).integers(0, 4, count).astype(dtype)


def check_collectives(comm, dtype, rows):
    """`rows`: of each rank's part."""
    dtype = numpy_dtype(dtype)
    n, rank = comm.nranks, comm.my_rank
    parts = [contribution(r, rows * 3, dtype, 1).reshape(rows, 3) for r in range(n)]
    wholes = [contribution(r, n * rows * 3, dtype, 2).reshape(n * rows, 3) for r in range(n)]
    total = sum(whole.astype(np.float64) for whole in wholes).astype(dtype)
    mine = slice(rank * rows, (rank + 1) * rows)

    def equal(result, expected):
        assert result.dtype == dtype and result.shape == expected.shape
        assert result.tobytes() == expected.tobytes()

    equal(comm.all_reduce(wholes[rank]), total)
    equal(comm.all_reduce(wholes[rank], op=mscclpp.ReduceOp.MAX), np.maximum.reduce(wholes))
    equal(comm.reduce_scatter(wholes[rank]), total[mine])
    equal(comm.all_gather(parts[rank]), np.concatenate(parts))
    equal(comm.all_to_all(wholes[rank]), np.concatenate([whole[mine] for whole in wholes]))
    for root in (0, n - 1):
        is_root = rank == root
        equal(comm.broadcast(parts[rank], root), parts[root])
        reduced = comm.reduce(wholes[rank], root)
        gathered = comm.gather(parts[rank], root)
        if is_root:
            equal(reduced, total)
            equal(gathered, np.concatenate(parts))
        else:
            assert reduced is None and gathered is None
        out = None if is_root else np.empty((rows, 3), dtype)
        equal(comm.scatter(wholes[root] if is_root else None, root, out=out), wholes[root][mine])
    after, before = (rank + 1) % n, (rank - 1) % n
    received = np.empty_like(parts[0])
    equal(comm.send_recv(parts[rank], after, received, before), parts[before])
    if rank == 0:
        comm.send(parts[0], 1)
    elif rank == 1:
        received = np.empty_like(parts[0])
        assert comm.recv(received, 0) is received
        equal(received, parts[0])

    # In place, and into a given array.
    data = wholes[rank].copy()
    assert comm.all_reduce(data, out=data) is data
    equal(data, total)
    data = parts[rank].copy()
    equal(comm.broadcast(data, 1, out=data), parts[1])
    data = np.full((n * rows, 3), 77).astype(dtype)
    data[mine] = parts[rank]
    equal(comm.all_gather(data[mine], out=data), np.concatenate(parts))


def check_all_types(comm, dtypes):
    for dtype in dtypes:
        for rows in (1, 0, 7, 1001):
            check_collectives(comm, dtype, rows)


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives(ranks):
    mscclpp.run(ranks, check_all_types, DTYPES, timeout=100)


def test_bfloat16():
    pytest.importorskip("ml_dtypes")
    mscclpp.run(2, check_all_types, ["bfloat16"], timeout=60)


def check_fp8(comm):
    for name in ("float8_e4m3fn", "float8_e5m2"):
        ones = np.ones(33, numpy_dtype(name))
        assert comm.all_reduce(ones).astype(np.float32).tolist() == [comm.nranks] * 33


def test_fp8():
    pytest.importorskip("ml_dtypes")
    mscclpp.run(2, check_fp8, timeout=60)


def check_operators(comm):
    data = np.array([1.5, -2, 3]) * (comm.my_rank + 1)
    both = [np.array([1.5, -2, 3]) * (r + 1) for r in range(2)]
    for op, expected in (("sum", both[0] + both[1]), ("prod", both[0] * both[1]), ("min", np.minimum(*both)),
                         ("max", np.maximum(*both)), ("avg", (both[0] + both[1]) / 2)):  # fmt: skip
        np.testing.assert_array_equal(comm.all_reduce(data, op=op), expected)
    names = comm.collectives(mscclpp.DeviceType.CPU).algorithms()
    for name in set(names) - {"copy_engine"}:  # it needs mapped memory
        np.testing.assert_array_equal(comm.all_reduce(data, algorithm=name), both[0] + both[1])
    # A scalar has one part; without dimensions its parts make one.
    assert comm.all_gather(np.full((), comm.my_rank, np.float32)).tolist() == [0, 1]


def test_operators_and_algorithms():
    mscclpp.run(2, check_operators, timeout=60)


def check_mapped_memory(comm):
    mapped = comm.empty((comm.nranks, 1000), np.int32)
    assert mapped.shape == (comm.nranks, 1000) and not mapped.any()
    comm.all_gather(np.full((1, 1000), comm.my_rank, np.int32), out=mapped)
    assert (mapped == np.arange(comm.nranks).reshape(-1, 1)).all()
    comm.free(mapped)
    try:
        comm.free(mapped)
    except mscclpp.InvalidUsage:
        pass
    else:
        raise AssertionError("an array was freed twice")
    # An algorithm that stores straight into the outputs of all ranks.
    outputs = comm.empty(3000)
    comm.all_reduce(np.ones(3000, np.float32), out=outputs, algorithm="copy_engine")
    assert (outputs == comm.nranks).all()
    assert comm.empty(0).shape == (0,)
    return True


def test_mapped_memory():
    assert mscclpp.run(2, check_mapped_memory, timeout=60) == [True, True]


def test_bfloat16_memory():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from rank_threads import single_rank

    with single_rank() as comm:
        assert comm.empty((2, 3), ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
        assert comm.empty((2, 3), "bfloat16").shape == (2, 3)
