"""Process groups whose ranks hang, die, abort, or end without destroying them."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", reason="built without -Dtorch=enabled", exc_type=ImportError)

import c10d_ranks  # noqa: E402
import mscclpp  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch._C._distributed_c10d import ErrorType  # noqa: E402


def default_backend():
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def wait_for_hung_rank(rank):
    dist.all_reduce(torch.ones(3))
    assert default_backend().get_error() == ErrorType.SUCCESS
    if rank == 2:
        time.sleep(8)
        return None
    begin = time.monotonic()
    with pytest.raises(mscclpp.Timeout) as error:
        dist.all_reduce(torch.ones(3))
    assert time.monotonic() - begin < 7
    assert default_backend().get_error() == ErrorType.TIMEOUT
    return str(error.value)


def test_a_hung_rank_is_named():
    texts = c10d_ranks.run(3, wait_for_hung_rank, group_timeout=3)
    assert "rank 2" in texts[0] and "rank 2" in texts[1], texts


def wait_for_too_long(rank):
    dist.barrier()
    if rank == 1:
        time.sleep(3)
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        with pytest.raises(mscclpp.Timeout, match="all_reduce.*has not completed within 200 ms"):
            work.wait(datetime.timedelta(milliseconds=200))
        assert not work.is_completed()
    work.wait()
    assert work.is_completed() and torch.equal(tensor, torch.full((3,), 2.0))
    # A shorter limit for the calls from now on.
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=600), dist.distributed_c10d._get_default_group())
    received = torch.empty(1)
    if rank == 1:
        with pytest.raises(mscclpp.Timeout, match="200 ms"):
            dist.irecv(received, 0).wait(datetime.timedelta(milliseconds=200))
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(1), 1)


def test_timeout_of_one_wait():
    c10d_ranks.run(2, wait_for_too_long)


def call_with_dead_rank(rank, folder):
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(mscclpp.RemoteError, match="rank 1"):
        while True:
            dist.all_reduce(torch.ones(3))
    with pytest.raises(mscclpp.RemoteError, match="rank 1"):
        dist.recv(torch.ones(3), 1)
    assert default_backend().get_error() == ErrorType.REMOTE_ERROR
    dist.destroy_process_group()
    assert time.monotonic() - begin < 15


def test_a_killed_rank_is_named(tmp_path):
    c10d_ranks.run(4, call_with_dead_rank, str(tmp_path), expect_exit=[1])


def abort_while_waiting(rank):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        works = [dist.all_reduce(torch.ones(3), async_op=True), dist.irecv(torch.ones(3), 1)]
        threading.Timer(0.5, default_backend().abort).start()
        for work in works:
            with pytest.raises(mscclpp.Aborted):
                work.wait()
            assert not work.is_success()
        with pytest.raises(mscclpp.Aborted, match="aborted"):
            dist.all_reduce(torch.ones(3))
        assert default_backend().get_error() == ErrorType.COMM_ERROR
    else:
        begin = time.monotonic()
        with pytest.raises(mscclpp.RemoteError, match="rank 0"):
            while True:
                dist.recv(torch.ones(3), 0)
        assert time.monotonic() - begin < 10


def test_abort():
    c10d_ranks.run(2, abort_while_waiting)


def abort_a_split(rank):
    world = dist.distributed_c10d._get_default_group()
    part = world.split_group([0, 1], group_name="part")
    part.allreduce([torch.ones(3)]).wait()
    if rank == 0:
        part.abort()
    else:
        with pytest.raises(mscclpp.RemoteError, match="rank 0"):
            part.allreduce([torch.ones(3)]).wait()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # over the same connections
    assert torch.equal(tensor, torch.full((3,), 2.0))


def test_abort_of_a_split():
    c10d_ranks.run(2, abort_a_split)


def test_missing_rank(tmp_path):
    """The others say which rank has not come."""
    program = f"""
import datetime, mscclpp.torch
from torch import distributed as dist
try:
    dist.init_process_group("mscclpp", init_method="file://{tmp_path}/store", rank=0, world_size=2,
                            timeout=datetime.timedelta(seconds=3))
except mscclpp.Timeout as error:
    assert "1" in str(error), error
    print("named")
"""
    assert finish(program).startswith("named")


def finish(program, **variables):
    process = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, timeout=100
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


ONE_RANK = """
import mscclpp.torch, torch
from torch import distributed as dist
dist.init_process_group("mscclpp", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
group = dist.new_group([0])
dist.all_reduce(tensor, group=group)
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "work = dist.all_reduce(tensor, async_op=True)",
        "import sys; sys.exit()",
        "dist.destroy_process_group(group)",
        "dist.destroy_process_group(); print(tensor.sum().item())",
        "keep = [group, dist.all_reduce(tensor, async_op=True)]; keep.append(keep)",
    ],
)
def test_exit_with_live_groups(end):
    finish(ONE_RANK + end)


def test_groups_end_before_the_interpreter():
    program = """
import atexit, mscclpp

def check():
    try:
        dist.all_reduce(torch.ones(1))
    except mscclpp.Aborted as error:
        print(error)

atexit.register(check)  # it runs after the handlers that are registered later
"""
    assert "was destroyed" in finish(program + ONE_RANK)


def test_destroyed_group():
    program = ONE_RANK + """
backend = group._get_backend(torch.device("cpu"))
dist.destroy_process_group()
try:
    backend.allreduce([tensor], dist.AllreduceOptions())
except mscclpp.Aborted as error:
    assert "destroyed" in str(error)
    print("right")
dist.init_process_group("mscclpp", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(tensor)
"""
    assert finish(program) == "right\n"


def test_other_version_of_torch():
    program = """
import torch
torch.__version__ = "2.99.0"
import mscclpp.c10d
try:
    mscclpp.c10d.load()
except mscclpp.InvalidUsage as error:
    print(error)
"""
    text = finish(program)
    assert "this is 2.99" in text and "built for PyTorch " in text, text


def test_wrong_options():
    with pytest.raises(mscclpp.InvalidUsage, match="pg_options is a dict"):
        mscclpp.c10d.create(None, {})
