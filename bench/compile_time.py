#!/usr/bin/env python3
"""Measures the cost of including each public header, and writes the table docs/compile_time.md.

usage: compile_time.py [--toolkit FOLDER] [--arch 90a] [--repeat 3] [--output FILE]

The cost is the CPU time (minimum of the repeats) of compiling a file that includes this header alone, less that of an
empty file. CPU time, unlike wall-clock time, is hardly affected by other load on the machine.
"""

import argparse
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "include"
sys.path.insert(0, str(ROOT / "tests" / "headers"))
import headers  # noqa: E402  which headers there are, and which of them nvcc compiles


def cpu_seconds(command):
    """Runs a command; returns the CPU time of it and its children, or None if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if subprocess.run(command, capture_output=True).returncode != 0:
        return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compile_seconds(compiler, suffix, text, repeat):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / f"one{suffix}"
        source.write_text(text)
        times = [cpu_seconds(compiler + [str(source), "-o", f"{folder}/one.o"]) for _ in range(repeat)]
    return None if None in times else min(times)


def lines(compiler, name):
    """Lines after preprocessing."""
    command = compiler + ["-E", "-P", "-xc++", "-"]
    return subprocess.run(command, input=f'#include "{name}"\n', capture_output=True, text=True).stdout.count("\n")


def version(program, marker):
    output = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return next(line for line in output.splitlines() if marker in line).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolkit", default="/usr/local/cuda")
    parser.add_argument("--arch", default="90a")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", default=str(ROOT / "docs" / "compile_time.md"))
    options = parser.parse_args()

    system = ["-isystem", f"{options.toolkit}/include/cccl", "-isystem", f"{options.toolkit}/include"]
    gcc = ["g++", "-std=c++20", f"-I{INCLUDE}", *system]
    nvcc = [f"{options.toolkit}/bin/nvcc", "-std=c++20", f"-arch=sm_{options.arch}", "--expt-relaxed-constexpr"]
    nvcc += [f"-I{INCLUDE}"]
    empty = [
        compile_seconds(gcc + ["-c"], ".cpp", "\n", options.repeat),
        compile_seconds(nvcc + ["-c"], ".cu", "\n", options.repeat),
    ]

    rows = []
    for_nvcc = set(headers.header_names(nvcc=True))
    for name in sorted(for_nvcc | set(headers.header_names(nvcc=False))):
        text = f'#include "{name}"\n'
        seconds = [
            compile_seconds(gcc + ["-c"], ".cpp", text, options.repeat) if name.endswith(".hpp") else None,
            compile_seconds(nvcc + ["-c"], ".cu", text, options.repeat) if name in for_nvcc else None,
        ]
        cells = ["-" if s is None else f"{max(s - e, 0):.2f}" for s, e in zip(seconds, empty)]
        preprocessed_lines = lines(gcc, name) if name.endswith(".hpp") else "-"
        rows.append(f"| `{name}` | {preprocessed_lines} | {cells[0]} | {cells[1]} |")
        print(rows[-1], file=sys.stderr)

    page = [
        "# What a header costs to include",
        "",
        "CPU seconds to compile a file that includes one header of `include/`, less those of an empty file",
        f"({empty[0]:.2f} s with g++, {empty[1]:.2f} s with nvcc); lines are counted after preprocessing by g++.",
        "A dash: the header does not support this compiler. [jit.md](jit.md#time) has times of NVRTC.",
        "",
        f"- g++: {version('g++', 'g++')}",
        f"- nvcc: {version(nvcc[0], 'release')}, sm_{options.arch}",
        f"- machine: {platform.machine()}, {platform.system()}",
        "- command: `python3 bench/compile_time.py`",
        "",
        "| header | lines | g++ | nvcc |",
        "| --- | ---: | ---: | ---: |",
        *rows,
    ]
    output = pathlib.Path(options.output)
    output.parent.mkdir(exist_ok=True)
    output.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    sys.exit(main())
