#!/usr/bin/env python3
"""Runs every command of mscclpp-perf on CPU ranks, checks what it reports, and tries wrong options.

usage: perf_commands_test.py PROGRAM PLAN_PROGRAM
"""

import json
import os
import subprocess
import sys
import tempfile

# Command: (bus bandwidth over algorithm bandwidth, for n ranks; whether the size is of all ranks' parts together)
COMMANDS = {
    "all_reduce": (lambda n: 2 * (n - 1) / n, False),
    "all_gather": (lambda n: (n - 1) / n, True),
    "reduce_scatter": (lambda n: (n - 1) / n, True),
    "all_to_all": (lambda n: (n - 1) / n, True),
    "broadcast": (lambda n: 1, False),
    "reduce": (lambda n: 1, False),
    "gather": (lambda n: (n - 1) / n, True),
    "scatter": (lambda n: (n - 1) / n, True),
    "send_receive": (lambda n: 1, False),
}
REDUCTIONS = {"all_reduce", "reduce_scatter", "reduce"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
NEVER_IN_PLACE = {"all_to_all", "send_receive"}
SIZES = [1, 1000, 40004]
INT16_BYTES = 2


def run(program, command, *arguments, environment=None):
    words = [program, command, "--device", "cpu", "--warmup", "1", "--calls", "2", "--repeats", "1", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **(environment or {})})


def sizes_option(sizes):
    return ",".join(map(str, sizes))


def check_command(program, command, ranks, *arguments):
    """All sizes are reported, as their collective counts them, and are correct."""
    options = ["-n", str(ranks), "--sizes", sizes_option(SIZES), "-d", "int16", "--json", *arguments]
    result = run(program, command, *options)
    assert result.returncode == 0, (command, ranks, arguments, result.stderr)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    factor, of_all_parts = COMMANDS[command]
    parts = ranks if of_all_parts else 1
    counts = [max(size // INT16_BYTES // parts, 1) for size in SIZES]
    assert [row["count"] for row in rows] == counts, rows
    for row, count in zip(rows, counts):
        assert row["collective"] == command and row["mode"] == "steady" and row["ranks"] == ranks, row
        assert row["bytes"] == count * parts * INT16_BYTES, row
        assert row["wrong"] == 0, row
        assert row["us"] > 0 and abs(row["algbw"] - row["bytes"] / row["us"] / 1e3) < 1e-6 * row["algbw"], row
        assert abs(row["busbw"] - row["algbw"] * factor(ranks)) <= 1e-6 * row["algbw"], row
        assert row["implementation"] == "mscclpp" and row["algorithm"], row
        assert ("op" in row) == (command in REDUCTIONS) and ("root" in row) == (command in ROOTED), row


def check_rejected(program, command, arguments, reason):
    result = run(program, command, *arguments)
    assert result.returncode != 0, (command, arguments, result.stdout)
    text = result.stdout + result.stderr
    assert reason in text, (command, arguments, text)


def check_plan(program, plan_program):
    """A plan is measured beside an algorithm, and compared with it."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan.json")
        subprocess.run([plan_program, "make", "all_reduce_two_shot", "--ranks", "2", "--out", plan], check=True)
        options = ["-n", "2", "--sizes", "1K,20K", "-a", "two_shot_ll16", "--plan", plan]
        result = run(program, "all_reduce", *options, "--json")
        assert result.returncode == 0, result.stderr
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(rows) == 4 and all(row["wrong"] == 0 for row in rows), rows
        for native, of_plan in zip(rows[::2], rows[1::2]):
            assert native["algorithm"] == of_plan["comparedWith"] == "two_shot_ll16" and "ratio" not in native, rows
            assert of_plan["implementation"] == "plan all_reduce_two_shot interpreted", of_plan
            assert abs(of_plan["ratio"] * native["us"] - of_plan["us"]) < 1e-6 * of_plan["us"], (native, of_plan)
            assert abs(native["us"] + of_plan["differenceUs"] - of_plan["us"]) < 1e-6 * of_plan["us"], (native, of_plan)
            reached = of_plan["ratio"] <= 1.04 or of_plan["differenceUs"] <= 0.7
            assert of_plan["goalReached"] == reached, of_plan
        table = run(program, "all_reduce", *options)
        verdicts = [line for line in table.stdout.splitlines() if "of 2 sizes within 4% or 0.70 us" in line]
        assert len(verdicts) == 1 and " of two_shot_ll16, " in verdicts[0], table.stdout
        check_rejected(program, "all_gather", ["-n", "2", "--plan", plan], "of the collective allreduce, not allgather")
        check_rejected(program, "all_reduce", ["-n", "3", "--plan", plan], "for 2 ranks: use -n 2")


def main(program, plan_program):
    check_plan(program, plan_program)
    for command in COMMANDS:
        for ranks in (2, 3):
            check_command(program, command, ranks)
            if command not in NEVER_IN_PLACE:
                check_command(program, command, ranks, "--in-place")
            if command in ROOTED:
                check_command(program, command, ranks, "--root", str(ranks - 1))
        if command in REDUCTIONS:
            for op in ("prod", "min", "max", "avg"):
                check_command(program, command, 2, "-o", op)

        small = ["-n", "2", "--sizes", "1K"]
        table = run(program, command, *small, "-d", "bfloat16")
        assert table.returncode == 0, table.stderr
        assert "all results are correct" in table.stdout, table.stdout
        assert ("of all ranks' parts together" in table.stdout) == COMMANDS[command][1], table.stdout

        if command not in REDUCTIONS:
            check_rejected(program, command, [*small, "--op", "sum"], "--op")
        if command in ROOTED:
            check_rejected(program, command, [*small, "--root", "2"], "--root 2: there are 2 ranks")
        else:
            check_rejected(program, command, [*small, "--root", "0"], "--root")
        if command in NEVER_IN_PLACE:
            check_rejected(program, command, [*small, "--in-place"], "--in-place")
        for mode in ("skewed", "rotated", "between"):
            check_rejected(program, command, [*small, "--mode", mode], "CPU ranks are timed with --mode steady only")
        check_rejected(program, command, [*small, "--mode", "fast"], "--mode")
        check_rejected(program, command, [*small, "--nccl"], "--nccl needs GPUs")
        check_rejected(program, command, [*small, "--datatype", "int7"], "--datatype")
        check_rejected(program, command, ["-n", "0"], "--ranks")
        check_rejected(program, command, ["-b", "2K", "-e", "1K"], "must not exceed --end")
        check_rejected(program, command, [*small, "-a", "no_such_algorithm"], "unknown algorithm")
    check_rejected(program, "all_scatter", [], "subcommand is required")
    print("all commands are as expected")


if __name__ == "__main__":
    main(*sys.argv[1:])
