#!/usr/bin/env python3
"""Has a second compiler check the C++ sources of a build folder, with the arguments that the first one got.

Tests are left out for time: library, examples and tools use every template.

usage: second_compiler.py --build BUILD_FOLDER COMPILER
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def commands(build, compiler):
    """Yields (source, command that checks it)."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".cpp") and "/tests/" not in entry["file"]:
            arguments = shlex.split(entry["command"])
            # From `g++ ... -MD -MQ object -MF file -o object -c source` only the part that says how to read the source.
            # A compiler cache may stand before the compiler.
            first = 2 if pathlib.Path(arguments[0]).name in ("ccache", "sccache") else 1
            kept = arguments[first : arguments.index("-MD")]
            yield entry["file"], [compiler, *kept, "-Werror", "-fsyntax-only", arguments[-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("compiler")
    options = parser.parse_args()
    work = list(commands(options.build, options.compiler))

    def check(item):
        return subprocess.run(item[1], cwd=options.build, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, work))
    bad = [(source, result.stderr) for (source, _), result in zip(work, results) if result.returncode != 0]
    for source, text in bad:
        print(f"==== {source}\n{text}")
    print(f"{len(work) - len(bad)} of {len(work)} sources pass")
    return 1 if bad or not work else 0


if __name__ == "__main__":
    sys.exit(main())
