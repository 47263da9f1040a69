#!/usr/bin/env python3
"""All-reduce on all GPUs beside NCCL, plain and with symmetric windows, and the library's kernels beside hand-written ones.

Called by `./dev bench gpu`; arguments after it go to mscclpp-perf, as in --nccl-library PATH."""

import argparse
import pathlib
import subprocess
import sys

SIZES = "1K,2K,4K,8K,16K,32K,64K,128K,256K,384K,512K,1M,2M,4M,8M,16M,32M,48M,64M"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), help="build folder")
    options, more = parser.parse_known_args()
    bench = options.build / "bench"
    perf = [bench / "perf" / "mscclpp-perf", "all_reduce", "-d", "bfloat16", "--sizes", SIZES, "--device", "gpu"]
    status = subprocess.run([*perf, "--nccl", *more], check=False).returncode
    control = subprocess.run([bench / "control" / "control"], check=False).returncode
    return status or (0 if control == 77 else control)  # 77: not the four GPUs that the control is written for


if __name__ == "__main__":
    sys.exit(main())
