#!/usr/bin/env python3
"""Has a second compiler check the C++ sources of a build folder, with the arguments that the first one got.

Tests are left out for time: library, examples and tools use every template. For the same reason the sources of a
target are checked several at a time, included in one; where that fails, fewer, down to each alone. That each includes
what it needs, the first compiler has shown. A source of several targets is checked once.

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

AT_ONCE = 8  # sources


def commands(build, compiler):
    """Yields (source, command that checks the source whose name is appended)."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".cpp") and "/tests/" not in entry["file"]:
            arguments = shlex.split(entry["command"])
            # From `g++ ... -MD -MQ object -MF file -o object -c source` only the part that says how to read the source.
            # A compiler cache may stand before the compiler.
            first = 2 if pathlib.Path(arguments[0]).name in ("ccache", "sccache") else 1
            kept = arguments[first : arguments.index("-MD")]
            yield arguments[-1], (compiler, *kept, "-Werror", "-fsyntax-only")


def groups(build, compiler):
    """Yields (sources, command) with sources of the same arguments, and hence of one target."""
    sources, seen = {}, set()
    for source, command in commands(build, compiler):
        if source not in seen:
            seen.add(source)
            sources.setdefault(command, []).append(source)
    for command, all_of_target in sources.items():
        for first in range(0, len(all_of_target), AT_ONCE):
            yield all_of_target[first : first + AT_ONCE], command


def check(build, sources, command):
    """Returns the compiler's messages for each source that it rejects."""
    options = {"cwd": build, "capture_output": True, "text": True}
    if len(sources) == 1:
        result = subprocess.run([*command, sources[0]], **options)
        return {} if result.returncode == 0 else {sources[0]: result.stderr}
    text = "".join(f'#include "{build / source}"\n' for source in sources)
    if subprocess.run([*command, "-xc++", "-"], input=text, **options).returncode == 0:
        return {}
    half = len(sources) // 2  # one may be wrong, or two may define the same name
    return check(build, sources[:half], command) | check(build, sources[half:], command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("compiler")
    options = parser.parse_args()
    work = list(groups(options.build.resolve(), options.compiler))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda group: check(options.build.resolve(), *group), work))
    bad = {source: text for result in results for source, text in result.items()}
    for source, text in bad.items():
        print(f"==== {source}\n{text}")
    count = sum(len(sources) for sources, _ in work)
    print(f"{count - len(bad)} of {count} sources pass")
    return 1 if bad or not work else 0


if __name__ == "__main__":
    sys.exit(main())
