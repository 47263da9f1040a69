"""Traces of Python programs, on CPU ranks."""

import json
import time

import mscclpp
import numpy as np
import pytest
from rank_threads import single_rank


def record(comm, folder):
    array = np.ones(100, np.float32)
    comm.all_reduce(array)  # not recorded
    with mscclpp.trace(f"{folder}/trace.json") as running:
        for step in range(3):
            with running.span("step", step):
                comm.all_reduce(array)
                time.sleep(0.01)
        comm.broadcast(array)
        assert running.lost == 0
    comm.all_reduce(array)  # not recorded
    try:
        with mscclpp.trace(f"{folder}/failed.json", comm):
            raise KeyError
    except KeyError:
        pass
    return True


def test_trace(tmp_path):
    assert mscclpp.run(2, record, str(tmp_path), timeout=60) == [True, True]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for rank in range(2):
        mine = [event for event in events if event["pid"] == rank]
        spans = [event for event in mine if event.get("name") == "step" and event["ph"] == "B"]
        assert [event["args"]["value"] for event in spans] == [0, 1, 2]
        begins = [event["ts"] for event in spans]
        assert begins[1] - begins[0] >= 10_000  # microseconds
        thread = {event["tid"]: event["args"]["name"] for event in mine if event.get("name") == "thread_name"}
        assert thread[spans[0]["tid"]] == "python"
        calls = [event for event in mine if thread.get(event["tid"]) == "calls" and event["ph"] == "B"]
        assert len(calls) == 4 and "broadcast" in calls[3]["name"]
    assert not (tmp_path / "failed.json").exists()


def test_which_group(tmp_path):
    with pytest.raises(mscclpp.InvalidUsage, match="0 groups are open"):
        with mscclpp.trace(tmp_path / "file"):
            pass
    with single_rank() as comm, single_rank():
        with pytest.raises(mscclpp.InvalidUsage, match="2 groups are open: pass comm="):
            with mscclpp.trace(tmp_path / "file"):
                pass
        with mscclpp.trace(tmp_path / "file", comm, device="cpu") as running:
            with pytest.raises(mscclpp.InvalidUsage, match="3072 events"):
                for i in range(4000):
                    with running.span(f"span {i}"):
                        pass
        with pytest.raises(mscclpp.InvalidUsage, match="device is 'gpu'"):
            with mscclpp.trace(tmp_path / "file", comm, device="gpu"):
                pass
