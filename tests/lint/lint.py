#!/usr/bin/env python3
"""Checks the tree: house rules, C++ formatting, build-file formatting, spelling.

usage: lint.py [--meson MESON] [rules|format|build_files|spelling ...]     (default: all four)
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (".hpp", ".cuh", ".cpp", ".cu", ".py", ".build", ".options", ".md", ".txt", ".in", ".sh", ".json", "")


def paths():
    """The files under version control and those about to be; without git, every file outside build folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True) if shutil.which("git") else None
    if listing is not None and listing.returncode == 0:
        names = listing.stdout.splitlines()
    else:
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(file) for file in files if not file.parts[0].startswith((".", "build"))]
    return sorted(name for name in set(names) if (ROOT / name).is_file())


def prose():
    """The files that people write, without recorded results."""
    return [path for path in paths() if pathlib.Path(path).suffix in TEXT and not path.startswith("bench/results/")]


def read_tree():
    return {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in prose()}


def run_tool(command, files, advice):
    """Runs a checker over files; each line of its output is a finding."""
    if command[0] is None or shutil.which(command[0]) is None:
        return [f"{command[0] or 'meson'} is missing: ./dev setup installs it"]
    if not files:
        return []
    result = subprocess.run(command + files, cwd=ROOT, capture_output=True, text=True)
    return [] if result.returncode == 0 else (result.stdout + result.stderr).splitlines() + [advice]


def check_rules(_):
    tree = read_tree()
    return [finding for rule in rules.RULES for finding in rule(tree)]


def check_format(_, files=None):
    files = files or [path for path in paths() if path.endswith(rules.CODE)]
    return run_tool(["clang-format-14", "--dry-run", "-Werror", "--ferror-limit=1"], files, "./dev format fixes this")


def check_build_files(meson, files=None):
    files = files or [path for path in paths() if path.endswith(("meson.build", "meson.options"))]
    command = [meson, "format", "--check-only", "--configuration", "meson.format"]
    advice = "./dev format fixes this"
    if not run_tool(command, files, advice):
        return []
    return [finding for file in files for finding in run_tool(command, [file], f"{file}: {advice}")]


def check_spelling(_, files=None):
    return run_tool(["codespell"], files or prose(), "add correct words to .codespellrc")


CHECKS = {"rules": check_rules, "format": check_format, "build_files": check_build_files, "spelling": check_spelling}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meson", default="meson", type=shutil.which, help="the meson program")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    options = parser.parse_args()
    findings = [finding for name in options.checks or CHECKS for finding in CHECKS[name](options.meson)]
    print("\n".join(findings) if findings else "no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
