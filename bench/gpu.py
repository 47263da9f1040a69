#!/usr/bin/env python3
"""Compares collectives on all GPUs with NCCL, plain and with symmetric windows, and the kernels with hand-written ones.

Called by `./dev bench gpu`; arguments after it are passed on to mscclpp-perf, such as --nccl-library PATH."""

import argparse
import pathlib
import subprocess
import sys

SIZES = "1K,2K,4K,8K,16K,32K,64K,128K,256K,384K,512K,1M,2M,4M,8M,16M,32M,48M,64M"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), help="build folder")
    commands = "commands of mscclpp-perf, such as all_gather,reduce"
    parser.add_argument("--collectives", default="all_reduce", help=commands)
    options, more = parser.parse_known_args()
    bench = options.build / "bench"
    status = 0
    for collective in options.collectives.split(","):
        perf = [bench / "perf" / "mscclpp-perf", collective, "-d", "bfloat16", "--sizes", SIZES, "--device", "gpu"]
        status = subprocess.run([*perf, "--nccl", *more], check=False).returncode or status
    overhead = subprocess.run([bench / "control" / "control"], check=False).returncode
    return status or (0 if overhead == 77 else overhead)  # 77: the hand-written baseline needs four GPUs


if __name__ == "__main__":
    sys.exit(main())
