"""Collectives with a count for each rank, groups of calls, and factors, over CPU ranks, against numpy."""

import mscclpp
import numpy as np
import pytest
from rank_threads import single_rank


def rows(first, count, dtype=np.int32):
    """`count` rows of 3 elements, which continue a sequence at row `first`."""
    return np.arange(first * 3, (first + count) * 3, dtype=dtype).reshape(count, 3)


def check_counts(comm, counts):
    n, rank = comm.nranks, comm.my_rank
    offsets = [sum(counts[:r]) for r in range(n)]
    whole = rows(0, sum(counts))
    mine = whole[offsets[rank] : offsets[rank] + counts[rank]]
    gathered = comm.all_gather_v(mine.copy(), counts)
    assert gathered.dtype == np.int32 and gathered.tolist() == whole.tolist()
    out = np.full_like(whole, -1)
    out[offsets[rank] : offsets[rank] + counts[rank]] = mine
    assert comm.all_gather_v(out[offsets[rank] : offsets[rank] + counts[rank]], counts, out=out) is out  # in place
    assert out.tolist() == whole.tolist()
    assert comm.reduce_scatter_v(whole * (rank + 1), counts).tolist() == (mine * (n * (n + 1) // 2)).tolist()
    assert comm.reduce_scatter_v(whole * (rank + 1), counts, op="max").tolist() == (mine * n).tolist()

    # Rank r sends r + s entries to rank s, but nothing to itself.
    def sent(origin, destination):
        return 0 if origin == destination else origin + destination

    parts = [rows(100 * rank + 10 * s, sent(rank, s)) for s in range(n)]
    expected = [rows(100 * r + 10 * rank, sent(r, rank)) for r in range(n)]
    send_counts, receive_counts = map(list, ([len(part) for part in parts], [len(part) for part in expected]))
    received = comm.all_to_all_v(np.concatenate(parts), send_counts, receive_counts)
    assert received.tolist() == np.concatenate(expected).tolist()
    return True


@pytest.mark.parametrize("ranks, counts", [(2, [3, 0]), (3, [0, 5, 1]), (3, [0, 0, 0]), (2, [40000, 1])])
def test_variable_counts(ranks, counts):
    assert mscclpp.run(ranks, check_counts, counts, timeout=60) == [True] * ranks


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda comm: comm.all_gather_v(np.zeros(3), [4]), "counts\\[rank\\] is 4, but the tensor has shape \\(3,\\)"),
        (lambda comm: comm.all_gather_v(np.zeros(3), [3, 0]), "for each of 1 ranks"),
        (lambda comm: comm.all_gather_v(np.zeros(()), [1]), "first dimension"),
        (lambda comm: comm.reduce_scatter_v(np.zeros(3), [-3]), "not negative"),
        (lambda comm: comm.all_to_all_v(np.zeros(3), [3], [3], out=np.zeros(2)), "out has shape"),
        (lambda comm: comm.all_to_all_v(np.zeros(3), [3], [2]), "same sizes"),
        (lambda comm: comm.all_reduce(np.zeros(3), mscclpp.pre_mul_sum(np.zeros(3))), "an array of one element"),
        (lambda comm: comm.all_reduce(np.zeros(3, np.int8), mscclpp.pre_mul_sum(0.5)), "factor 0.5.* is no int8"),
        (lambda comm: comm.all_reduce(np.zeros(3, np.int8), mscclpp.pre_mul_sum(128)), "factor 128.* is no int8"),
        (lambda comm: comm.all_reduce(np.zeros(3), mscclpp.Reduction("min max", 1)), "unknown operator"),
    ],
)
def test_errors(call, sentence):
    with single_rank() as comm, pytest.raises(mscclpp.InvalidUsage, match=sentence):
        call(comm)


def check_factors(comm):
    factor = comm.my_rank + 2  # 2, 3
    for dtype in (np.int8, np.uint64, np.float16, np.float32, np.float64):
        ones = np.ones(7, dtype)
        assert comm.all_reduce(ones, mscclpp.pre_mul_sum(factor)).tolist() == [5] * 7
        in_memory = np.full(1, factor, dtype)
        assert comm.all_reduce(ones, mscclpp.pre_mul_sum(in_memory)).tolist() == [5] * 7
        assert comm.all_reduce(ones, mscclpp.Reduction("prod", factor)).tolist() == [6] * 7
        assert comm.reduce_scatter_v(ones, [3, 4], mscclpp.pre_mul_sum(factor)).tolist() == [5] * (3 + comm.my_rank)
    assert comm.all_reduce(np.ones(3, np.float32), mscclpp.pre_mul_sum(0.25)).tolist() == [0.5] * 3
    return True


def test_factors():
    assert mscclpp.run(2, check_factors, timeout=60) == [True, True]


def check_groups(comm):
    n, rank = comm.nranks, comm.my_rank
    peers = [peer for peer in range(n) if peer != rank]
    # Long messages to all at once, each sent before any is received: without a group, all ranks would wait.
    size = 1 << 21
    received = {peer: np.zeros(size, np.int32) for peer in peers}
    with comm.group():
        for peer in peers:
            comm.send(np.full(size, 10 * rank + peer, np.int32), peer)
        for peer in reversed(peers):
            assert comm.recv(received[peer], peer) is received[peer]
    for peer in peers:
        assert (received[peer] == 10 * peer + rank).all()

    # More messages than a call of the library takes.
    many = [np.zeros(3, np.int64) for _ in range(150)]
    with comm.group():
        for i in range(150):
            comm.send(np.full(3, i + rank), (rank + 1) % n)
        for each in many:
            comm.recv(each, (rank - 1) % n)
    assert [each.tolist() for each in many] == [[i + (rank - 1) % n] * 3 for i in range(150)]

    # Collectives and messages in any order, a group in a group, with a factor.
    before = np.zeros(2)
    with comm.group():
        total = comm.all_reduce(np.ones(2), mscclpp.pre_mul_sum(2))
        comm.send(np.full(2, rank, float), (rank + 1) % n)
        with comm.group():
            gathered = comm.all_gather(np.full(1, rank))
        comm.recv(before, (rank - 1) % n)
        parts = comm.all_gather_v(np.full(rank, rank), range(n))
        scattered = comm.reduce_scatter_v(np.ones(n), [n] + [0] * (n - 1))
    assert total.tolist() == [2 * n] * 2 and gathered.tolist() == list(range(n))
    assert before.tolist() == [(rank - 1) % n] * 2
    assert parts.tolist() == [r for r in range(n) for _ in range(r)]
    assert scattered.tolist() == [n] * (n if rank == 0 else 0)

    # A part is not received where another one is sent from.
    parts = np.ones(2 * n)
    with pytest.raises(mscclpp.InvalidUsage, match="input and output overlap: the part from rank"):
        comm.all_to_all_v(parts, [2] * n, [2] * n, out=parts)
    with pytest.raises(mscclpp.InvalidUsage, match="input and output overlap"):
        comm.all_gather_v(parts[1:3], [2] * n, out=parts)

    # A rank that does not exist is refused, also among more messages than a call takes.
    for peer in (99, 50_000_000, -1):
        with pytest.raises(mscclpp.InvalidUsage, match=f"is to rank {peer}, but the ranks are 0 to {n - 1}"):
            with comm.group():
                for _ in range(150):
                    comm.send(np.ones(3), (rank + 1) % n)
                comm.send(np.ones(3), peer)

    # Nothing of a block that raises is performed.
    target = np.zeros(3)
    try:
        with comm.group():
            comm.all_reduce(np.ones(3), out=target)
            raise KeyError
    except KeyError:
        pass
    assert not target.any() and comm.all_reduce(np.ones(1)).tolist() == [n]
    return True


def test_groups():
    assert mscclpp.run(3, check_groups, timeout=60) == [True] * 3
