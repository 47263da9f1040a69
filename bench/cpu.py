#!/usr/bin/env python3
"""Compares all-reduce on CPU ranks with Open MPI's MPI_Allreduce, and writes bench/results/cpu_all_reduce.txt.

usage: cpu.py [--build FOLDER] [--ranks 2,4] [--rounds 3] [--output FILE]

Both are timed alike: float, sum, out of place; wall-clock time of a loop of calls, median of the repeats, maximum over
the ranks. The implementations alternate for several rounds, so that other load affects all of them, and the median of
the rounds is reported. Open MPI runs twice a round, with its default for whether idle ranks yield and with yielding
forced; the table has the better of the two.
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
# Sizes that are measured together: bytes, calls per measurement, measurements.
GROUPS = [
    ([KIB << i for i in range(6)], 200, 9),
    ([KIB << i for i in range(6, 12)], 40, 7),
    ([KIB << i for i in range(12, 15)], 6, 5),
    ([KIB << i for i in range(15, 17)], 2, 5),
]
MSCCLPP = "mscclpp"
MPI = {"default": [], "yield": ["--mca", "mpi_yield_when_idle", "1"]}


def run(command):
    """Runs one implementation; returns {bytes: microseconds} from its JSON lines."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if result.returncode != 0:
        output = result.stdout + result.stderr
        sys.exit(f"{shlex.join(map(str, command))}\nfailed with code {result.returncode}:\n{output}")
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {line["bytes"]: line["us"] for line in lines}


def implementations(build, ranks, group):
    sizes, calls, repeats = group
    perf = [build / "bench/perf/mscclpp-perf", "all_reduce", "--device", "cpu", "-n", ranks, "--json"]
    perf += ["--warmup", min(20, calls), "--calls", calls, "--repeats", repeats, "--sizes", ",".join(map(str, sizes))]
    mpirun = ["mpirun", "--oversubscribe", "-n", ranks, "--mca", "btl", "self,vader"]
    mpi = [build / "bench/mpi/mpi_all_reduce", calls, repeats, *sizes]
    commands = {MSCCLPP: perf, **{name: mpirun + options + mpi for name, options in MPI.items()}}
    return {name: [str(word) for word in command] for name, command in commands.items()}


def measure(build, ranks, rounds):
    """Rows (bytes, mscclpp, Open MPI, how Open MPI waited)."""
    rows = []
    for group in GROUPS:
        times = {}
        for number in range(1, rounds + 1):
            if sys.stderr.isatty():
                progress = f"{ranks} ranks, {group[0][0] // KIB} KiB ..., round {number} of {rounds}"
                print(f"\r{progress}\x1b[K", end="", file=sys.stderr)
            for name, command in implementations(build, ranks, group).items():
                for size, microseconds in run(command).items():
                    times.setdefault((size, name), []).append(microseconds)
        medians = {key: statistics.median(values) for key, values in times.items()}
        for size in group[0]:
            mpi = min(MPI, key=lambda name: medians[size, name])
            rows.append((size, medians[size, MSCCLPP], medians[size, mpi], mpi))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return rows


def table(ranks, rows):
    columns = f"{'bytes':>10} {'mscclpp (us)':>12} {'Open MPI (us)':>14} {'ratio':>9}  Open MPI yields"
    lines = [f"{ranks} ranks", columns]
    for size, mscclpp, mpi, mode in rows:
        lines.append(f"{size:>10} {mscclpp:>12.2f} {mpi:>14.2f} {mscclpp / mpi:>9.2f}  {mode}")
    slower = [str(size) for size, mscclpp, mpi, _ in rows if mscclpp > mpi]
    lines.append("at or below Open MPI's time at every size" if not slower else "slower at " + ", ".join(slower))
    return "\n".join(lines)


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0].strip()


def cpu_model():
    for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def scheduler_prefix():
    """Precedes the command where it runs under the real-time policy, which keeps other load off the CPUs."""
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
        advice = f"install Open MPI, run meson setup --reconfigure {build}, then ninja"
        sys.exit(f"no bench/mpi/mpi_all_reduce in {build}: {advice}")

    page = [
        "All-reduce on CPU ranks, one process each: float, sum, out of place.",
        "Wall-clock time of a loop of calls; median of the repeats, maximum over the ranks, median of the rounds.",
        f"machine: {cpu_model()}, {os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}",
        f"versions: {first_line('mpirun', '--version')}; {first_line('c++', '--version')}; Linux {platform.release()}",
        f"command: {scheduler_prefix()}./dev bench cpu ({options.rounds} rounds)",
    ]
    for ranks in map(int, options.ranks.split(",")):
        page += ["", table(ranks, measure(build, ranks, options.rounds))]
        print("\n".join(page[-2:]), flush=True)
    output = pathlib.Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
