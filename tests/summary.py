#!/usr/bin/env python3
"""Adds up the results of `meson test` over build folders and prints them in one line.

usage: summary.py BUILD_FOLDER...
Exits with 1 if a test failed, or if none ran.
"""

import json
import pathlib
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def results(folder):
    """Yields (test name, result) of the last run in a build folder; none if no test of it was selected."""
    log = pathlib.Path(folder) / "meson-logs" / "testlog.json"
    if log.exists():
        for line in log.read_text().splitlines():
            test = json.loads(line)
            yield test["name"], test["result"]


def main(folders):
    passed = failed = skipped = 0
    for folder in folders:
        for name, result in results(folder):
            if result in PASSED:
                passed += 1
            elif result in SKIPPED:
                skipped += 1
            else:
                failed += 1
                print(f"{result}: {name} ({folder})")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
