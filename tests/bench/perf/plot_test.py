#!/usr/bin/env python3
"""Draws a few measurements with bench/plot.py. Where matplotlib is not installed, checks that plot.py says so.

usage: plot_test.py PLOT
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile


def measurement(implementation, size, microseconds, **changes):
    line = {"collective": "all_reduce", "mode": "steady", "ranks": 4, "bytes": size, "count": size // 2}
    line |= {"type": "bfloat16", "op": "sum", "inPlace": False, "implementation": implementation}
    line |= {"algorithm": "x", "us": microseconds, "algbw": size / microseconds / 1e3, **changes}
    line["busbw"] = line["algbw"] * 1.5
    return json.dumps(line)


def run(plot, *arguments):
    return subprocess.run([sys.executable, plot, *arguments], capture_output=True, text=True)


def main(plot):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = [measurement(name, size, 2.0) for name in ("mscclpp", "NCCL") for size in (1024, 8192)]
        lines += ["# not JSON", measurement("mscclpp", 1024, 3.0, mode="rotated")]
        lines += [measurement("mscclpp", 4096, -0.1, mode="rotated")]
        (folder / "data.json").write_text("\n".join(lines) + "\n")
        result = run(plot, folder / "data.json", "--output", folder / "first")
        if importlib.util.find_spec("matplotlib") is None:
            assert result.returncode != 0 and "needs matplotlib" in result.stderr, result.stderr
            print("matplotlib is not installed, and plot.py says so")
            return
        assert result.returncode == 0, result.stderr
        drawn = sorted(path.name for path in (folder / "first").iterdir())
        assert drawn == ["all_reduce_rotated.svg", "all_reduce_steady.svg"], drawn
        text = (folder / "first" / "all_reduce_steady.svg").read_text()
        for word in ("all_reduce, 4 ranks, bfloat16, sum", "NCCL", "time (us)", "bus bandwidth (GB/s)", "8 KiB"):
            assert word in text, word

        assert run(plot, folder / "data.json", "--output", folder / "second").returncode == 0
        for name in drawn:
            assert (folder / "first" / name).read_bytes() == (folder / "second" / name).read_bytes(), name

        (folder / "empty.json").write_text("# nothing\n")
        empty = run(plot, folder / "empty.json", "--output", folder / "first")
        assert empty.returncode != 0 and "no measurements" in empty.stderr, empty.stderr
        (folder / "other.json").write_text('{"bytes": 1}\n')
        other = run(plot, folder / "other.json", "--output", folder / "first")
        assert other.returncode != 0 and "other.json:1: not a measurement" in other.stderr, other.stderr
    print("figures are as expected")


if __name__ == "__main__":
    main(sys.argv[1])
