#!/usr/bin/env python3
"""Compiles public headers with one compiler: each alone, or all in one file.

usage: headers.py [--nvcc] [--together] [--only GLOB] -- COMPILER ARGUMENT...

Alone: each header, twice in one file.
Together: all headers in one file, from the first name to the last, and in another one from the last to the first: a
header that does not include what it needs compiles in both only by the luck of its neighbours.
With --nvcc, which compiles for host and device: the headers that a kernel may include, and all of compat/, since its
users include them in one source. Otherwise: those that need no nvcc. Exit code 1 names each header that does not
compile. `--self` checks instead that a header which is not self-contained is detected.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
COMPAT = ROOT / "compat/include"
CCACHE = ["ccache"] if shutil.which("ccache") else []

HOST_ONLY = ("mscclpp/host/", "mscclpp/emulation/")  # may need what nvcc's device pass does not have
NEEDS_CUTLASS = ("mscclpp/fusion/cutlass/",)  # compiled by what uses them, where CUTLASS is
UMBRELLAS = ("mscclpp/core.hpp", "mscclpp/algorithm.hpp")  # include host headers


def header_names(nvcc):
    for path in sorted(INCLUDE.glob("mscclpp/**/*.[hc]*")):
        name = path.relative_to(INCLUDE).as_posix()
        if name.endswith(".hpp") and not (nvcc and (name.startswith(HOST_ONLY) or name in UMBRELLAS)):
            yield name
        elif name.endswith(".cuh") and nvcc and not name.startswith(NEEDS_CUTLASS):
            yield name
    for path in sorted(COMPAT.glob("mscclpp/**/*.hpp")):
        yield path.relative_to(COMPAT).as_posix()


def compile_headers(compiler, nvcc, names, include=INCLUDE):
    """Compiles a file that includes `names`. Returns the compiler's error message, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        source = "headers.cu" if nvcc else "headers.cpp"
        (pathlib.Path(folder) / source).write_text("".join(f'#include "{name}"\n' for name in names))
        mode = ["-c", "-MD", "-o", "output"]  # which ccache keeps, whatever the folder's name is
        command = CCACHE + compiler + mode + ["-I", str(COMPAT), "-I", str(include), source]
        result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        return "" if result.returncode == 0 else result.stderr or f"exit code {result.returncode}"


def compile_alone(compiler, nvcc, name, include=INCLUDE):
    return compile_headers(compiler, nvcc, [name, name], include)


def self_test(compiler, nvcc):
    bad = {
        "missing_include.hpp": "#pragma once\ninline std::map<int, int> m;\n",
        "no_guard.hpp": "struct Twice {};\n",
        "warning.hpp": "#pragma once\ninline int f(int unused) { int x; return 0; }\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in bad.items():
            (pathlib.Path(folder) / name).write_text(text)
            if not compile_alone(compiler, nvcc, name, folder):
                print(f"{name} was not detected")
                return 1
    print("headers that are not self-contained are detected")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", action="store_true")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--only", default="*", help="headers to compile, e.g. '*/sync/*'")
    parser.add_argument("--self", action="store_true", dest="self_test")
    parser.add_argument("compiler", nargs="+")
    options = parser.parse_args()
    if options.self_test:
        return self_test(options.compiler, options.nvcc)

    chosen = [name for name in header_names(options.nvcc) if fnmatch.fnmatch(name, options.only)]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    if options.together:
        orders = [chosen, chosen[::-1]]
        errors = list(pool.map(lambda names: compile_headers(options.compiler, options.nvcc, names), orders))
        print("\n".join(error for error in errors if error) or f"{len(chosen)} headers compile in one file")
        return 1 if any(errors) or not chosen else 0

    with pool:
        errors = list(pool.map(lambda name: compile_alone(options.compiler, options.nvcc, name), chosen))
    bad = {name: text for name, text in zip(chosen, errors) if text}
    for name, text in bad.items():
        print(f"==== {name}\n{text}")
    print(f"{len(chosen) - len(bad)} of {len(chosen)} headers are self-contained")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
