#!/usr/bin/env python3
"""Compares the names that libraries export with those that programs look for.

usage: symbols_test.py --nm NM [--header NCCL_H]... LIBRARY...

Each library must export every name of names/*.txt (the functions of two versions of NCCL, and what builds of PyTorch
import) and of the headers given, each with its pnccl twin, and nothing else.
"""

import argparse
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "names"


def exported(nm, library):
    """The names of the functions that a library defines for others."""
    output = subprocess.run(
        [nm, "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in output.splitlines() if line.strip()}


def of_header(text):
    """The functions that a header declares."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*", "", text, flags=re.S | re.M)
    return set(re.findall(r"\b(nccl[A-Z]\w*)\s*\([^;{]*\)\s*;", code))


def findings(names, wanted, source):
    """Sentences about what a library lacks."""
    for name in sorted(wanted):
        for twin in (name, "p" + name):
            if twin not in names:
                yield f"{twin} is missing, a name of {source}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    lists = {path.name: set(path.read_text().split()) for path in sorted(FOLDER.glob("*.txt"))}
    assert min(len(names) for names in lists.values()) >= 38, "a list of names is incomplete"
    lists |= {header: of_header(pathlib.Path(header).read_text()) for header in arguments.header}
    known = {twin for names in lists.values() for name in names for twin in (name, "p" + name)}
    failures = []
    for library in arguments.libraries:
        names = exported(arguments.nm, library)
        for source, wanted in lists.items():
            assert len(wanted) >= 38, f"{source} declares few functions: is it NCCL's header?"
            failures += [f"{library}: {finding}" for finding in findings(names, wanted, source)]
        # The linker may add names of its own, such as _end; the API's alone begin so.
        strangers = sorted(name for name in names - known if not name.startswith("_"))
        failures += [f"{library}: {name} is exported, and is no name of NCCL's" for name in strangers]
    print("\n".join(failures) or "all names are there")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
