#!/usr/bin/env python3
"""Runs a program over NCCL's C API and checks what MSCCLPP_NCCL_INFO and NCCL_DEBUG make it print.

usage: summary_test.py PROGRAM [ARGUMENT]...
"""

import os
import re
import subprocess
import sys


def output(command, **variables):
    environment = os.environ | variables
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stderr


def main():
    command = sys.argv[1:]
    silent = output(command)
    assert "mscclpp in place of NCCL" not in silent and "calls of NCCL's API" not in silent, silent
    printed = output(command, MSCCLPP_NCCL_INFO="1", NCCL_DEBUG="VERSION")
    assert printed.count("mscclpp in place of NCCL, as version 2.") == 1, printed
    assert printed.count("calls of NCCL's API in this process:") == 1, printed
    found = re.search(r"ncclAllReduce by mscclpp: (\d+) calls, (\d+) bytes", printed)
    assert found and int(found.group(1)) > 0 and int(found.group(2)) > 0, printed
    assert "ready, performed by mscclpp" not in printed, printed
    informed = output(command, NCCL_DEBUG="INFO")
    assert "on the CPU: ready, performed by mscclpp" in informed, informed
    assert "ready, performed by mscclpp" not in output(command, NCCL_DEBUG="INFO", MSCCLPP_LOG_LEVEL="ERROR")


if __name__ == "__main__":
    main()
