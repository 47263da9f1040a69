"""The tuner, on CPU ranks."""

import json

import mscclpp
import numpy as np
import pytest
from rank_threads import single_rank

SIZES = (1024, 65536)


def tune(comm, file):
    choices = comm.tune(file, ["broadcast", "send_receive"], SIZES, calls=2, repeats=3)
    comm.tune(file, "broadcast", SIZES, calls=2, repeats=1)  # in place of the table before
    assert (comm.all_reduce(np.ones(3)) == 2).all()
    return choices


def selected_algorithms(comm):
    collectives = comm.collectives(mscclpp.DeviceType.CPU)
    calls = [mscclpp.CollectiveCall(mscclpp.CollectiveType.broadcast, count=size // 4) for size in SIZES]
    return [collectives.selected_algorithm(call) for call in calls]


def test_tune(tmp_path, monkeypatch):
    file = tmp_path / "tuning.json"
    first, second = mscclpp.run(2, tune, str(file), timeout=120)
    assert first == second and set(first) == {"broadcast", "send_receive"}
    content = json.loads(file.read_text())
    tables = {table["collective"]: table for table in content["tables"]}
    assert set(tables) == set(first) and len(content["tables"]) == 2
    assert all(table["ranks"] == 2 and table["device"] == "" for table in content["tables"])
    written = [(each.get("maxBytes"), each["algorithm"]) for each in tables["send_receive"]["choices"]]
    assert written == first["send_receive"] and len(written) > 0

    # Processes select by such a file.
    monkeypatch.setenv("MSCCLPP_TUNING_FILE", str(file))
    fits = [each["algorithm"] for each in tables["broadcast"]["choices"]]
    assert set(mscclpp.run(2, selected_algorithms, timeout=60)[1]) <= set(fits)
    for choice in ("pipelined", "ll16"):
        tables["broadcast"]["choices"] = [{"maxBytes": SIZES[1], "algorithm": choice}]
        file.write_text(json.dumps(content))
        assert mscclpp.run(2, selected_algorithms, timeout=60)[0] == [choice] * 2


def tune_into_other_file(comm, file):
    with pytest.raises(mscclpp.InvalidUsage, match="is no tuning file"):
        comm.tune(file, "all_reduce", SIZES)
    with pytest.raises(mscclpp.InvalidUsage, match="no_such_folder"):
        comm.tune("/no_such_folder/file.json", "all_reduce", SIZES)
    return True


def test_errors_come_first_and_on_all_ranks(tmp_path):
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert mscclpp.run(2, tune_into_other_file, str(file), timeout=60) == [True, True]
    with single_rank() as comm:
        with pytest.raises(mscclpp.InvalidUsage, match="no collective 'allreduce'.*all_reduce"):
            comm.tune(tmp_path / "new.json", "allreduce")
        with pytest.raises(mscclpp.InvalidUsage, match="device is 'gpu'"):
            comm.tune(tmp_path / "new.json", device="gpu")
    assert not (tmp_path / "new.json").exists()


def test_progress_bar(tmp_path, capsys):
    with single_rank() as comm:
        comm.tune(tmp_path / "file", "all_reduce", [64, 128], calls=1, repeats=1, progress=True)
        shown = capsys.readouterr().err
        assert "] 1/2 all_reduce of 128 bytes" in shown and f"[{'#' * 30}] 2/2 done" in shown
        comm.tune(tmp_path / "file", "all_reduce", [64], calls=1, repeats=1)  # no terminal
    assert capsys.readouterr().err == ""
