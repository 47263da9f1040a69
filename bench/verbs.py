#!/usr/bin/env python3
"""Compares writes over verbs with perftest's in one run, and writes the table bench/results/verbs.txt.

usage: verbs.py [--build FOLDER] [--rounds 8] [--output FILE]

There is no RDMA hardware in reach of the repository, so both run in the guest of tests/guest/ between two software
devices: the figures say what the library adds to a driver, not how fast a network is. The contestants take turns for
several rounds, and the best of the rounds counts, since a disturbance only slows. Each rank of both keeps to a processor.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BANDWIDTH_BYTES = 65536
LATENCY_BYTES = 8
WRITES = 300
MESSAGES = 1000
# Least share of perftest's bandwidth, and most of its latency.
LEAST_BANDWIDTH, MOST_LATENCY = 0.90, 1.2


def ours(build, test, size, count):
    command = [build / "bench/verbs/mscclpp-verbs", test, "-s", str(size), "-n", str(count)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        sys.exit(f"mscclpp-verbs {test} failed:\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout)["value"]


def perftest(program, size, count, column):
    """A number of the last line of a client's table, the server having been started first."""
    options = ["-s", str(size), "-n", str(count), "-x", "1", "-F"]
    with subprocess.Popen(["taskset", "-c", "1", program, "-d", "rxe1", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        for _ in range(100):
            client = subprocess.run(["taskset", "-c", "0", program, "-d", "rxe0", *options, "10.77.0.2"], capture_output=True, text=True, timeout=120)
            if client.returncode == 0:
                break
            if server.poll() is not None:
                sys.exit(f"{program} failed:\n{server.stdout.read()}")
        server.communicate(timeout=60)
    rows = [line.split() for line in client.stdout.splitlines() if re.match(rf"\s*{size}\s", line)]
    if client.returncode != 0 or not rows:
        sys.exit(f"{program} failed:\n{client.stdout}{client.stderr}")
    return float(rows[-1][column])


def inside(build, rounds, output):
    """In the guest: measures, and leaves the figures in output."""
    contestants = {
        "bandwidth ours": lambda: ours(build, "write_bw", BANDWIDTH_BYTES, WRITES),
        "bandwidth perftest": lambda: perftest("ib_write_bw", BANDWIDTH_BYTES, WRITES, 3) * 2**20 / 1e6,
        "latency ours": lambda: ours(build, "write_lat", LATENCY_BYTES, MESSAGES),
        "latency perftest": lambda: perftest("ib_write_lat", LATENCY_BYTES, MESSAGES, 4),
        "atomic": lambda: ours(build, "atomic_lat", LATENCY_BYTES, MESSAGES),
        "immediate": lambda: ours(build, "immediate_lat", LATENCY_BYTES, MESSAGES),
    }
    figures = {name: [] for name in contestants}
    for turn in range(rounds):
        for name, measure in contestants.items():
            figures[name].append(measure())
        print(f"round {turn + 1} of {rounds}: " + ", ".join(f"{name} {values[-1]:.1f}" for name, values in figures.items()), flush=True)
    output.write_text(json.dumps(figures))


def in_guest(build, rounds):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, ROOT / "tests/guest/guest.py", "--nics", "2", "--timeout", str(60 + 60 * rounds), "--results", folder, "--"]
        command += [sys.executable, __file__, "--inside", "--build", build, "--rounds", str(rounds)]
        code = subprocess.run([str(word) for word in command]).returncode
        if code != 0:
            sys.exit(code)
        return json.loads((pathlib.Path(folder) / "figures.json").read_text())


def processor():
    for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def version(package):
    return subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", package], capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", default=str(ROOT / "bench/results/verbs.txt"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    if options.inside:
        inside(build, options.rounds, pathlib.Path("/run/guest/results/figures.json"))
        return 0
    figures = in_guest(build, options.rounds)
    best = {name: (max if name.startswith("bandwidth") else min)(values) for name, values in figures.items()}
    bandwidth = best["bandwidth ours"] / best["bandwidth perftest"]
    latency = best["latency ours"] / best["latency perftest"]
    page = [
        "Writes over verbs between two processes, each with a software device (Soft-RoCE), in a virtual machine that is emulated:",
        "the ratios count, the figures are no network's. Best of the rounds; contestants take turns.",
        f"machine: {processor()}, {os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}",
        f"versions: {version('perftest')}, {version('qemu-system-x86')}, {version('ibverbs-providers')}",
        f"command: ./dev bench verbs --rounds {options.rounds}",
        "",
        f"{'':<34} {'ours':>10} {'perftest':>10} {'ours/perftest':>14}",
        f"{'write, 64 KiB (MB/s), ib_write_bw':<34} {best['bandwidth ours']:>10.1f} {best['bandwidth perftest']:>10.1f} {bandwidth:>14.2f}",
        f"{'write, 8 bytes (us), ib_write_lat':<34} {best['latency ours']:>10.1f} {best['latency perftest']:>10.1f} {latency:>14.2f}",
        f"{'signal by atomic (us)':<34} {best['atomic']:>10.1f}",
        f"{'signal by immediate (us)':<34} {best['immediate']:>10.1f}",
        "",
        f"wanted: {LEAST_BANDWIDTH:.2f} of the bandwidth or more: {'met' if bandwidth >= LEAST_BANDWIDTH else 'MISSED'};"
        f" {MOST_LATENCY} times the latency or less: {'met' if latency <= MOST_LATENCY else 'MISSED'}",
    ]
    print("\n".join(page))
    output = pathlib.Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(page) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
