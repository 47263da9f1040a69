#!/usr/bin/env python3
"""Compares RDMA writes over verbs with perftest's, and writes the table bench/results/verbs.txt.

usage: verbs.py [--build FOLDER] [--rounds 8] [--output FILE]

Continuous integration has no RDMA hardware, so both run in the VM of tests/vm/ between two software devices: this
measures the library's overhead above the driver, not a network. The benchmarks alternate for several rounds, and the
best round is reported, since other load only slows them down. Each rank is pinned to a CPU.
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
# Required: at least this share of perftest's bandwidth, at most this multiple of its latency.
MIN_BANDWIDTH_RATIO, MAX_LATENCY_RATIO = 0.90, 1.2


def mscclpp(build, test, size, count):
    command = [build / "bench/verbs/mscclpp-verbs", test, "-s", str(size), "-n", str(count)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        sys.exit(f"mscclpp-verbs {test} failed:\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout)["value"]


def perftest(program, size, count, column):
    """A column of the last row that perftest's client prints; starts the server first."""
    options = ["-s", str(size), "-n", str(count), "-x", "1", "-F"]
    server_command = ["taskset", "-c", "1", program, "-d", "rxe1", *options]
    client_command = ["taskset", "-c", "0", program, "-d", "rxe0", *options, "10.77.0.2"]
    with subprocess.Popen(server_command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        for _ in range(100):
            client = subprocess.run(client_command, capture_output=True, text=True, timeout=120)
            if client.returncode == 0:
                break
            if server.poll() is not None:
                sys.exit(f"{program} failed:\n{server.stdout.read()}")
        server.communicate(timeout=60)
    rows = [line.split() for line in client.stdout.splitlines() if re.match(rf"\s*{size}\s", line)]
    if client.returncode != 0 or not rows:
        sys.exit(f"{program} failed:\n{client.stdout}{client.stderr}")
    return float(rows[-1][column])


def measure_in_vm(build, rounds, output):
    """Runs in the VM: measures, and writes the measurements to the file output."""
    benchmarks = {
        "bandwidth mscclpp": lambda: mscclpp(build, "write_bw", BANDWIDTH_BYTES, WRITES),
        "bandwidth perftest": lambda: perftest("ib_write_bw", BANDWIDTH_BYTES, WRITES, 3) * 2**20 / 1e6,
        "latency mscclpp": lambda: mscclpp(build, "write_lat", LATENCY_BYTES, MESSAGES),
        "latency perftest": lambda: perftest("ib_write_lat", LATENCY_BYTES, MESSAGES, 4),
        "atomic": lambda: mscclpp(build, "atomic_lat", LATENCY_BYTES, MESSAGES),
        "immediate": lambda: mscclpp(build, "immediate_lat", LATENCY_BYTES, MESSAGES),
    }
    measurements = {name: [] for name in benchmarks}
    for number in range(1, rounds + 1):
        for name, measure in benchmarks.items():
            measurements[name].append(measure())
        latest = ", ".join(f"{name} {values[-1]:.1f}" for name, values in measurements.items())
        print(f"round {number} of {rounds}: {latest}", flush=True)
    output.write_text(json.dumps(measurements))


def in_vm(build, rounds):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, ROOT / "tests/vm/vm.py", "--nics", "2", "--timeout", str(60 + 60 * rounds)]
        command += ["--results", folder, "--", sys.executable, __file__]
        command += ["--in-vm", "--build", build, "--rounds", str(rounds)]
        code = subprocess.run([str(word) for word in command]).returncode
        if code != 0:
            sys.exit(code)
        return json.loads((pathlib.Path(folder) / "measurements.json").read_text())


def cpu_model():
    for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def version(package):
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}", package]
    return subprocess.run(command, capture_output=True, text=True).stdout


def verdict(is_met):
    return "met" if is_met else "MISSED"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", default=str(ROOT / "bench/results/verbs.txt"))
    parser.add_argument("--in-vm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    if options.in_vm:
        measure_in_vm(build, options.rounds, pathlib.Path("/run/vm/results/measurements.json"))
        return 0
    measurements = in_vm(build, options.rounds)
    best = {name: (max if name.startswith("bandwidth") else min)(values) for name, values in measurements.items()}
    bandwidths = best["bandwidth mscclpp"], best["bandwidth perftest"]
    latencies = best["latency mscclpp"], best["latency perftest"]
    bandwidth, latency = bandwidths[0] / bandwidths[1], latencies[0] / latencies[1]
    page = [
        "RDMA writes over verbs between two processes, each with a software device (Soft-RoCE), in an emulated VM:",
        "compare ratios; absolute values say nothing about a network. Best of the rounds; the benchmarks alternate.",
        f"machine: {cpu_model()}, {os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}",
        f"versions: {version('perftest')}, {version('qemu-system-x86')}, {version('ibverbs-providers')}",
        f"command: ./dev bench verbs --rounds {options.rounds}",
        "",
        f"{'':<34} {'mscclpp':>10} {'perftest':>10} {'ratio':>14}",
        f"{'write, 64 KiB (MB/s), ib_write_bw':<34} {bandwidths[0]:>10.1f} {bandwidths[1]:>10.1f} {bandwidth:>14.2f}",
        f"{'write, 8 bytes (us), ib_write_lat':<34} {latencies[0]:>10.1f} {latencies[1]:>10.1f} {latency:>14.2f}",
        f"{'signal by atomic (us)':<34} {best['atomic']:>10.1f}",
        f"{'signal by immediate (us)':<34} {best['immediate']:>10.1f}",
        "",
        f"bandwidth ratio at least {MIN_BANDWIDTH_RATIO:.2f}: {verdict(bandwidth >= MIN_BANDWIDTH_RATIO)};"
        f" latency ratio at most {MAX_LATENCY_RATIO}: {verdict(latency <= MAX_LATENCY_RATIO)}",
    ]
    print("\n".join(page))
    output = pathlib.Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(page) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
