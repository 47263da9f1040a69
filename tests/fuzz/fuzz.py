#!/usr/bin/env python3
"""Runs a fuzzer for a while, from its corpus. What it finds is a file, to be put into the corpus with the repair.

usage: fuzz.py PROGRAM CORPUS          run; MSCCLPP_FUZZ_SECONDS says how long (default 12)
       fuzz.py --probe COMPILER        exit with 0 if the compiler can link fuzzers
       fuzz.py --missing               say that it cannot, and skip

Inputs that reached something new are kept for the next run in MSCCLPP_FUZZ_CORPUS, a folder, if that is set.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
EMPTY = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n'


def probe(compiler):
    """Whether the compiler has libFuzzer and AddressSanitizer, and its programs start."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "empty"
        command = [compiler, "-x", "c++", "-", "-fsanitize=fuzzer,address,undefined", "-o", program]
        if subprocess.run(command, input=EMPTY, text=True, capture_output=True).returncode != 0:
            return 1
        return subprocess.run([program, "-runs=1"], capture_output=True, cwd=folder).returncode


def missing():
    print("no clang++ with the runtimes of libFuzzer and AddressSanitizer (Debian: clang, libclang-rt-dev): skipped")
    return SKIPPED


def run(program, corpus):
    seconds = float(os.environ.get("MSCCLPP_FUZZ_SECONDS", "12"))
    program, corpus = pathlib.Path(program).resolve(), pathlib.Path(corpus).resolve()
    findings = program.parent / "findings"
    findings.mkdir(exist_ok=True)
    kept = os.environ.get("MSCCLPP_FUZZ_CORPUS")
    with tempfile.TemporaryDirectory() as scratch:
        grown = pathlib.Path(kept) / program.name if kept else pathlib.Path(scratch)
        grown.mkdir(parents=True, exist_ok=True)
        arguments = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-artifact_prefix={findings}/{program.name}-",
            "-timeout=30",  # seconds for one input: no reader may hang
            "-rss_limit_mb=2048",
            "-max_len=4096",
            "-print_final_stats=1",
            "-verbosity=0",
        ]
        environment = {**os.environ, "MSCCLPP_LOG_LEVEL": "NONE"}
        result = subprocess.run([program, *arguments, grown, corpus], env=environment, cwd=scratch)
    if result.returncode != 0:
        print(f"repeat it with: {program} FILE, the file in {findings}")
    return 1 if result.returncode else 0


def main(arguments):
    if arguments[:1] == ["--probe"] and len(arguments) == 2:
        return probe(arguments[1])
    if arguments == ["--missing"]:
        return missing()
    if len(arguments) != 2:
        sys.exit(__doc__)
    return run(*arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
