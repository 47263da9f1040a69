#!/usr/bin/env python3
"""Runs mscclpp-perf --trace on CPU ranks, and checks the tracks, spans and calls in the file, and invalid options.

usage: perf_trace_test.py PROGRAM
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CALLS = 2
ONE_SHOT_LIMIT = 256 << 10
# The larger one is just too long for one-shot. When ranks share a processor, every packet may be waited for; the waits
# of 1 MiB were too many for the buffers of events.
SIZES = [4096, ONE_SHOT_LIMIT + 4096]
STAGES = {
    "one_shot_ll16": {"push", "reduce"},
    "two_shot_sentinel": {"push", "reduce", "collect"},
    "pipelined": {"push", "reduce", "collect", "publish"},
}


def run(program, *arguments, environment=None):
    command = [program, "all_reduce", "--device", "cpu", "--warmup", "1", "--calls", "2", "--repeats", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def spans(events):
    """The spans of a track as (name, start, end, arguments, depth), by their starts. They must nest, in order."""
    found, stack, last = [], [], 0.0
    for event in events:
        assert event["ts"] >= last, f"time goes back: {event}"
        last = event["ts"]
        if event["ph"] == "B":
            stack.append(len(found))
            found.append([event["name"], event["ts"], None, event.get("args", {}), len(stack) - 1])
        elif event["ph"] == "E":
            assert stack and found[stack[-1]][0] == event["name"], f"ends nothing: {event}"
            found[stack.pop()][2] = event["ts"]
    assert not stack, f"does not end: {[found[i] for i in stack]}"
    return found


def check(trace, ranks, algorithms):
    names, tracks = {}, collections.defaultdict(list)
    for event in trace["traceEvents"]:
        key = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[key] = event["args"]["name"]
        else:
            tracks[key].append(event)
    assert set(tracks) <= set(names), "a track has no name"
    assert sorted((key[0], names[key]) for key in tracks) == sorted(
        (rank, name) for rank in range(ranks) for name in ("block 0", "calls")
    ), names
    assert [rank["rank"] for rank in trace["otherData"]["ranks"]] == list(range(ranks))

    calls = {}
    for key, events in tracks.items():
        found = spans(events)
        if names[key] == "calls":
            calls[key[0]] = found
            expected = [(name, size) for size, name in algorithms for _ in range(CALLS)]
            assert [(name, args["bytes"]) for name, _, _, args, _ in found] == expected, found
    for key, events in tracks.items():
        if names[key] == "calls":
            continue
        found = spans(events)
        blocks = [span for span in found if span[0] == "all_reduce"]
        assert len(blocks) == len(calls[key[0]])
        for block, call in zip(blocks, calls[key[0]]):
            assert block[3] == call[3] and call[1] <= block[1] <= block[2] <= call[2], (block, call)
            stages = [s for s in found if s[4] > 0 and block[1] <= s[1] and s[2] <= block[2]]
            assert {s[0] for s in stages} - {"wait"} == STAGES[call[0]], (call, {s[0] for s in stages})
        waits = [span for span in found if span[0] == "wait"]
        assert all(span[3].get("peer", 0) in range(ranks) for span in waits)
    # One clock: all ranks are in a call together at some moment, since no rank ends before all have begun.
    for at in range(len(calls[0])):
        assert max(c[at][1] for c in calls.values()) < min(c[at][2] for c in calls.values()), "no common moment"


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        for ranks, names in ((2, ["one_shot_ll16", "two_shot_sentinel", "pipelined"]), (3, ["pipelined"])):
            sizes = ",".join(str(size) for size in SIZES)
            options = ["-n", str(ranks), "--sizes", sizes, "-a", ",".join(names)]
            result = run(program, *options, "--trace", path, "--trace-calls", str(CALLS))
            assert result.returncode == 0, result.stderr
            # Nothing follows the path: no event was dropped.
            assert f"# trace of {CALLS} calls of each size: {path}" in result.stdout.splitlines(), result.stdout
            calls = [(size, name) for size in SIZES for name in names]
            expected_calls = [call for call in calls if call[1] != "one_shot_ll16" or call[0] <= ONE_SHOT_LIMIT]
            check(json.loads(path.read_text()), ranks, expected_calls)
            path.unlink()

        environment = {**os.environ, "MSCCLPP_NPKIT_DUMP_DIR": folder}
        for first in (True, False):
            result = run(program, "-n", "2", "--sizes", "4K", environment=environment)
            assert result.returncode == 0, result.stderr
            for rank in range(2):
                file = pathlib.Path(folder) / f"trace_rank_{rank}{'' if first else '_2'}.json"
                events = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "B"]
                # The check, a warm-up, and one measurement with the call before it that absorbs the skew.
                assert sum(e["name"] == "all_reduce" for e in events) == 5, events
                assert sum(e["name"] == "pipelined" for e in events) == 5, events
                assert {e["pid"] for e in events} == {rank}, events
        environment["MSCCLPP_NPKIT_DUMP_DIR"] = "/no/such"
        missing = run(program, "-n", "2", "--sizes", "4K", environment=environment)
        assert missing.returncode != 0, missing.stdout
        assert "MSCCLPP_NPKIT_DUMP_DIR is '/no/such', which is not a folder" in missing.stderr, missing.stderr
        assert "all_reduce" not in missing.stdout, "measured before it checked the folder"

        unwritable = run(program, "-n", "2", "--sizes", "1K", "--trace", "/no/such/folder/trace.json")
        assert unwritable.returncode != 0, unwritable.stderr
        assert "cannot write /no/such/folder/trace.json" in unwritable.stderr, unwritable.stderr
        assert "all_reduce" not in unwritable.stdout, "measured before it checked the file"
        unsupported = run(program, "-n", "2", "--sizes", "1K", "-d", "int32", "--trace", path)
        assert unsupported.returncode != 0, unsupported.stderr
        assert "float32 and bfloat16 with operator sum" in unsupported.stderr, unsupported.stderr
    print("traces are as expected")


if __name__ == "__main__":
    main(sys.argv[1])
