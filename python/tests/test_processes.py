"""Ranks that fail, launchers, the import, and the end of the interpreter."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import mscclpp
import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "01_all_reduce.py"


def die_or_wait(comm, report):
    comm.all_reduce(np.ones(4))
    if comm.my_rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.ones(4))
    except mscclpp.RemoteError as error:
        pathlib.Path(report).write_text(f"{error.code.name}: {error}")
        raise


def test_killed_rank(tmp_path):
    report = tmp_path / "report"
    begin = time.monotonic()
    with pytest.raises(mscclpp.RankFailed, match="rank 1 failed:\nkilled by SIGKILL") as error:
        mscclpp.run(2, die_or_wait, str(report), timeout=60)
    assert error.value.rank == 1 and time.monotonic() - begin < 20
    text = report.read_text()
    assert text.startswith("RemoteError") and "rank 1" in text


def fail(comm):
    if comm.my_rank == 1:
        raise KeyError("of rank 1")
    comm.barrier()


def test_failed_function():
    with pytest.raises(mscclpp.RankFailed, match="KeyError: 'of rank 1'") as error:
        mscclpp.run(3, fail, timeout=60)
    assert error.value.rank == 1


def sleep(comm):
    if comm.my_rank == 0:
        time.sleep(600)
    return comm.my_rank


def test_run_times_out():
    with pytest.raises(mscclpp.Timeout, match=r"ranks \[0"):
        mscclpp.run(2, sleep, timeout=5)


def note_and_sleep(comm, folder):
    (pathlib.Path(folder) / str(os.getpid())).touch()
    comm.barrier()
    time.sleep(600)


def is_running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ranks_end_with_the_program(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import mscclpp, test_processes
mscclpp.run(2, test_processes.note_and_sleep, {str(tmp_path)!r})
"""
    script = tmp_path / "program.py"
    script.write_text(program.replace("mscclpp.run", "if __name__ == '__main__': mscclpp.run"))
    process = run_python([script])
    wait_until(lambda: len(list(tmp_path.glob("[0-9]*"))) == 2)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(is_running(path.name) for path in tmp_path.glob("[0-9]*")))


def run_python(arguments, **variables):
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == "", err
    return out


def test_example():
    assert finish(run_python([EXAMPLE])) == "rank 0 of 2: right\nrank 1 of 2: right\n"


@pytest.mark.parametrize(
    "rank, size, local_rank, local_size, job",
    [
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
         "PMIX_NAMESPACE"),
    ],
)  # fmt: skip
def test_launchers(rank, size, local_rank, local_size, job):
    same = {size: "2", local_size: "2", job: f"job{os.getpid()}"}
    ranks = [run_python([EXAMPLE], **{rank: str(i), local_rank: str(i)}, **same) for i in range(2)]
    assert [finish(process) for process in ranks] == ["rank 0 of 2: right\n", "rank 1 of 2: right\n"]


def test_import():
    """It configures no logging, and needs no other package."""
    check = """
import logging, sys
import mscclpp
from mscclpp import *
assert logging.getLogger().handlers == []
assert not {"numpy", "torch", "cupy"} & set(sys.modules)
assert version["version"] == mscclpp.__version__ and env().wait_timeout.total_seconds() > 0
assert (__import__("pathlib").Path(get_lib()) / mscclpp._mscclpp.__file__).exists()
"""
    finish(run_python(["-c", check]))


LIVE_OBJECTS = """
import threading, time
import numpy, mscclpp
bootstrap = mscclpp.TcpBootstrap.create(0, 1)
bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id())
comm = mscclpp.CommGroup(bootstrap=bootstrap)
array = comm.empty(100)
comm.all_reduce(array, out=array)
collectives = comm.collectives(mscclpp.DeviceType.CPU)
context = mscclpp.Context()
cycle = [comm, bootstrap]
cycle.append(cycle)
builder = mscclpp.AlgorithmCollectionBuilder()
builder.set_algorithm_selector(lambda algorithms, request: None)
algorithms = builder.build_default_algorithms(device_type=mscclpp.DeviceType.CPU)
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "import sys; sys.exit()",
        "threading.Thread(target=lambda: bootstrap.recv(0, 9), daemon=True).start(); time.sleep(0.2)",
    ],
)
def test_exit_with_live_objects(end):
    finish(run_python(["-c", LIVE_OBJECTS + end]))


def test_types_are_declared():
    folder = pathlib.Path(mscclpp.__file__).parent
    stub = folder / "_mscclpp.pyi"
    if not stub.exists():
        pytest.skip("built without the stub")
    text = stub.read_text()
    assert (folder / "py.typed").exists()
    for name in dir(mscclpp._mscclpp):
        assert name.startswith("__") or name in text, name
