#!/usr/bin/env python3
"""Checks that misuse does not compile, and that the compiler reports why.

usage: compile_fail.py [--self | SOURCE...] -- COMPILER ARGUMENT...

A source has a line `// EXPECT: REGEX`: compiling it must fail with a message that the regex matches; with
`// EXPECT FIRST: REGEX` that message must be the first error. To show that it fails for this reason only, it must
compile with -DCORRECT, which selects the correct use (`#ifdef CORRECT`). The arguments of a line `// ARGUMENTS: ...`
are given to the compiler in the wrong use only.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def failure_reason(compiler, source):
    """Returns why compiling a source does not fail as it expects, or None."""
    text = source.read_text()
    expected = re.search(r"^// EXPECT( FIRST)?: (.+)$", text, flags=re.M)
    arguments = re.search(r"^// ARGUMENTS: (.+)$", text, flags=re.M)
    if not expected:
        return "has no line `// EXPECT: REGEX`"
    command = compiler + ["-fsyntax-only", str(source)]
    correct = subprocess.run(command + ["-DCORRECT"], capture_output=True, text=True)
    if correct.returncode != 0:
        return f"does not compile with -DCORRECT:\n{correct.stderr}"
    wrong = subprocess.run(
        command + (arguments.group(1).split() if arguments else []), capture_output=True, text=True
    )
    if wrong.returncode == 0:
        return "compiles without -DCORRECT"
    errors = [line for line in wrong.stderr.splitlines() if re.search(r"\b(error|note)\b", line)]
    if expected.group(1):
        errors = [line for line in errors if re.search(r"\berror\b", line)][:1]
    if not any(re.search(expected.group(2), line) for line in errors):
        where = " first" if expected.group(1) else ""
        return f"fails, but without the message {expected.group(2)}{where}:\n" + "\n".join(errors)
    return None


def self_test(compiler):
    good = "// EXPECT: only this\n#ifndef CORRECT\n#error only this\n#endif\n"
    samples = {
        good: True,
        good.replace("// EXPECT", "// EXPECTED"): False,
        good.replace("#error only this", "#error another"): False,
        good.replace("#ifndef CORRECT\n", "").replace("#endif\n", ""): False,
        good.replace("#error only this\n", ""): False,
        good.replace("EXPECT", "EXPECT FIRST"): True,
        good.replace("#error only", "#error another\n#error only"): True,
        good.replace("#error only", "#error another\n#error only").replace("EXPECT", "EXPECT FIRST"): False,
        good.replace("CORRECT", "WRONG").replace("#ifndef", "// ARGUMENTS: -DWRONG\n#ifdef"): True,
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, (text, accepted) in enumerate(samples.items()):
            source = pathlib.Path(folder) / f"sample{number}.cpp"
            source.write_text(text)
            if (failure_reason(compiler, source) is None) != accepted:
                print(f"wrong verdict on sample {number}:\n{text}")
                return 1
    print("sources that compile, or fail for another reason, are detected")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self", action="store_true", dest="self_test")
    parser.add_argument("sources", nargs="*", type=pathlib.Path)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    compiler = sys.argv[split + 1 :]
    options = parser.parse_args(sys.argv[1:split])
    if options.self_test:
        return self_test(compiler)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failure_reasons = list(pool.map(lambda source: failure_reason(compiler, source), options.sources))
    bad = {source: text for source, text in zip(options.sources, failure_reasons) if text}
    for source, text in bad.items():
        print(f"{source}: {text}")
    print(f"{len(failure_reasons) - len(bad)} of {len(failure_reasons)} misuses are rejected with the expected message")
    return 1 if bad or not failure_reasons else 0


if __name__ == "__main__":
    sys.exit(main())
