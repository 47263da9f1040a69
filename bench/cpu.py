#!/usr/bin/env python3
"""Compares all-reduce on CPU ranks with Open MPI's MPI_Allreduce in one run, and writes the table bench/results/cpu_all_reduce.txt.

usage: cpu.py [--build FOLDER] [--ranks 2,4] [--rounds 3] [--output FILE]

Both are timed alike: float, sum, out of place; calls in a loop by the clock, median of the repeats, maximum over the ranks. The contestants
take turns for several rounds, so that a disturbance meets all of them, and the median of the rounds counts. Open MPI runs twice a round, as
it decides itself whether idle ranks yield and with yielding forced; the better of the two stands in the table.
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KIB = 1024
# Sizes that are measured together: bytes, calls a measurement, measurements.
GROUPS = [
    ([KIB << i for i in range(6)], 200, 9),
    ([KIB << i for i in range(6, 12)], 40, 7),
    ([KIB << i for i in range(12, 15)], 6, 5),
    ([KIB << i for i in range(15, 17)], 2, 5),
]
OURS = "ours"
MPI = {"as it decides": [], "yield": ["--mca", "mpi_yield_when_idle", "1"]}


def run(command):
    """Runs a contestant; returns {bytes: microseconds} of its JSON lines."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\nfailed with code {result.returncode}:\n{result.stdout}{result.stderr}")
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {line["bytes"]: line["us"] for line in lines}


def contestants(build, ranks, group):
    sizes, calls, repeats = group
    ours = [build / "bench/perf/mscclpp-perf", "all_reduce", "--device", "cpu", "-n", ranks, "--json", "--warmup", min(20, calls)]
    ours += ["--calls", calls, "--repeats", repeats, "--sizes", ",".join(map(str, sizes))]
    mpirun = ["mpirun", "--oversubscribe", "-n", ranks, "--mca", "btl", "self,vader"]
    theirs = [build / "bench/mpi/mpi_all_reduce", calls, repeats, *sizes]
    commands = {OURS: ours, **{name: mpirun + options + theirs for name, options in MPI.items()}}
    return {name: [str(word) for word in command] for name, command in commands.items()}


def measure(build, ranks, rounds):
    """Rows (bytes, ours, Open MPI, how it waited)."""
    rows = []
    for group in GROUPS:
        times = {}
        for turn in range(rounds):
            if sys.stderr.isatty():
                print(f"\r{ranks} ranks, {group[0][0] // KIB} KiB ..., round {turn + 1} of {rounds}\x1b[K", end="", file=sys.stderr)
            for name, command in contestants(build, ranks, group).items():
                for size, microseconds in run(command).items():
                    times.setdefault((size, name), []).append(microseconds)
        middle = {key: statistics.median(values) for key, values in times.items()}
        for size in group[0]:
            mpi = min(MPI, key=lambda name: middle[size, name])
            rows.append((size, middle[size, OURS], middle[size, mpi], mpi))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return rows


def table(ranks, rows):
    lines = [f"{ranks} ranks", f"{'bytes':>10} {'ours (us)':>11} {'Open MPI (us)':>14} {'ours/MPI':>9}  Open MPI yields"]
    for size, ours, mpi, how in rows:
        lines.append(f"{size:>10} {ours:>11.2f} {mpi:>14.2f} {ours / mpi:>9.2f}  {how}")
    slower = [str(size) for size, ours, mpi, _ in rows if ours > mpi]
    lines.append("at or below Open MPI's time at every size" if not slower else "slower at " + ", ".join(slower))
    return "\n".join(lines)


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0].strip()


def processor():
    for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def scheduling():
    """What stands before the command if it does not run as other programs do: the real-time policy that keeps a busy machine's other work away."""
    return "chrt -f 1 " if os.sched_getscheduler(0) == os.SCHED_FIFO else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default=str(ROOT / "bench/results/cpu_all_reduce.txt"))
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    if not (build / "bench/mpi/mpi_all_reduce").exists():
        sys.exit(f"no bench/mpi/mpi_all_reduce in {build}: with Open MPI installed, meson setup --reconfigure {build}, then ninja")

    page = [
        "All-reduce on CPU ranks, a process each: float, sum, out of place.",
        "Calls in a loop by the clock; median of the repeats, maximum over the ranks, median of the rounds.",
        f"machine: {processor()}, {os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}",
        f"versions: {first_line('mpirun', '--version')}; {first_line('c++', '--version')}; Linux {platform.release()}",
        f"command: {scheduling()}./dev bench cpu ({options.rounds} rounds)",
    ]
    for ranks in map(int, options.ranks.split(",")):
        page += ["", table(ranks, measure(build, ranks, options.rounds))]
        print("\n".join(page[-2:]), flush=True)
    output = pathlib.Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
