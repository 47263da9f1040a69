#!/usr/bin/env python3
"""Checks the documentation: links and paths exist, headings and code blocks are whole, complete C++ snippets compile.

usage: docs.py [--toolkit FOLDER]
"""

import argparse
import fnmatch
import posixpath
import re
import subprocess
import sys

import lint

FOLDERS = ("include/", "host/", "kernels/", "tests/", "bench/", "tools/", "examples/", "docs/", "python/", "compat/")
FOLDERS += ("packaging/",)


def without_code(text):
    """The text with fenced blocks blanked out; line numbers stay."""
    return re.sub(r"^```.*?^```", lambda match: "\n" * match.group(0).count("\n"), text, flags=re.S | re.M)


def anchors(text):
    """The anchors of a page's headings."""
    for heading in re.findall(r"^#+\s+(.*)$", without_code(text), flags=re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def exists(tree, path):
    path = path.rstrip("/")
    return any(fnmatch.fnmatch(name, path) or name.startswith(path + "/") for name in tree)


def pages(tree):
    return ((path, text) for path, text in tree.items() if path.endswith(".md"))


def links(tree):
    """The target of a relative link is a file of the repository, and its anchor a heading of that file."""
    for path, text in pages(tree):
        for number, line in enumerate(without_code(text).splitlines(), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"\w+:", target):
                    continue
                file, _, anchor = target.partition("#")
                full = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
                if not exists(tree, full):
                    yield f"{path}:{number}: {target}: no such file"
                elif anchor and anchor not in anchors(tree.get(full, "")):
                    yield f"{path}:{number}: {target}: no such heading"


def paths(tree):
    """A path in backticks that starts with a folder of the repository exists: there, beside the page, or among
    the headers. * and <name> stand for anything."""
    for path, text in pages(tree):
        for number, line in enumerate(without_code(text).splitlines(), 1):
            for name in re.findall(r"`([\w./*<>-]+)`", line):
                pattern = re.sub(r"<\w+>", "*", name)
                places = ("", posixpath.dirname(path), "include/mscclpp")
                found = any(exists(tree, posixpath.join(place, pattern)) for place in places)
                if name.startswith(FOLDERS) and not found:
                    yield f"{path}:{number}: {name}: no such file"


def variables(tree):
    """Every environment variable of the library is documented."""
    page = "docs/environment.md"
    declared = re.findall(r"\b(?:MSCCLPP|NCCL)_[A-Z0-9_]+", tree.get("include/mscclpp/host/base/env.hpp", ""))
    for name in sorted(set(declared)):
        if not re.search(rf"`{name}\b", tree.get(page, "")):
            yield f"{page}:1: does not describe {name} (include/mscclpp/host/base/env.hpp)"


def headings(tree):
    """A heading is short: a long one has swallowed the paragraph after it."""
    longest = 80
    for path, text in pages(tree):
        for number, line in enumerate(without_code(text).splitlines(), 1):
            if re.match(r"#+\s", line) and len(line) > longest:
                yield f"{path}:{number}: a heading of {len(line)} characters, the most are {longest}: break the line"


def fences(tree):
    """A code block begins and ends at lines of its own, and every one ends."""
    for path, text in pages(tree):
        begin = 0
        for number, line in enumerate(text.splitlines(), 1):
            if "```" not in line:
                continue
            fence = re.fullmatch(r"\s*```(\w*)", line)
            if not fence or (begin and fence.group(1)):
                yield f"{path}:{number}: ``` is not on a line of its own, or inside of a code block"
                break
            begin = 0 if begin else number
        else:
            if begin:
                yield f"{path}:{begin}: the code block does not end"


RULES = [links, paths, variables, headings, fences]


def check_snippets(tree, toolkit="/usr/local/cuda"):
    """A block marked cpp that starts with #include is a whole translation unit and must compile."""
    findings = []
    for path, text in pages(tree):
        for match in re.finditer(r"^```cpp\n(#include.*?)^```", text, flags=re.S | re.M):
            command = ["g++", "-std=c++20", "-fsyntax-only", "-xc++"]
            command += [f"-I{lint.ROOT}/include", f"-I{lint.ROOT}/compat/include"]
            command += ["-isystem", f"{toolkit}/include/cccl", "-isystem", f"{toolkit}/include", "-"]
            result = subprocess.run(command, input=match.group(1), capture_output=True, text=True)
            if result.returncode != 0:
                findings.append(f"{path}:{text[:match.start()].count(chr(10)) + 1}: does not compile:\n{result.stderr}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolkit", default="/usr/local/cuda")
    tree = dict.fromkeys(lint.paths(), "") | lint.read_tree()  # links may lead to other files than text
    findings = [finding for rule in RULES for finding in rule(tree)]
    findings += check_snippets(tree, parser.parse_args().toolkit)
    print("\n".join(findings) if findings else "every link exists, every snippet compiles")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
