#!/usr/bin/env python3
"""Adds up the results of `meson test` over build folders and prints them in one line.

usage: summary.py BUILD_FOLDER...
Before that line come the tests that failed, each with the end of its output. Exits with 1 if a test failed, or if none
ran.
"""

import json
import pathlib
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}
OUTPUT_LINES = 40  # of a failed test


def results(folder):
    """Yields the tests of the last run in a build folder, as Meson logs them; none if no test of it was selected."""
    log = pathlib.Path(folder) / "meson-logs" / "testlog.json"
    if log.exists():
        for line in log.read_text().splitlines():
            yield json.loads(line)


def end_of_output(test):
    """The last lines of what a test printed, indented."""
    lines = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
    return "".join(f"    {line}\n" for line in lines[-OUTPUT_LINES:])


def main(folders):
    passed = failed = skipped = 0
    for folder in folders:
        for test in results(folder):
            result = test["result"]
            if result in PASSED:
                passed += 1
            elif result in SKIPPED:
                skipped += 1
            else:
                failed += 1
                print(f"{result}: {test['name']} ({folder}), {test['duration']:.0f} s\n{end_of_output(test)}", end="")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
