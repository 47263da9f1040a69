#!/usr/bin/env python3
"""mscclpp-info runs on this machine, and its JSON has the fields that docs/info.md lists, no more and no fewer.

usage: info_test.py PROGRAM DOCUMENTATION
"""

import json
import os
import re
import subprocess
import sys


def documented(path):
    """The fields of the table's first column."""
    with open(path, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| `")]
    return {field for row in rows for field in re.findall(r"`([^`]+)`", row.split("|")[1])}


def fields(value, prefix=""):
    """The paths of all values of a JSON document, as the documentation writes them."""
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{prefix}.{name}" if prefix else name
            if path == "environment":
                yield path
            else:
                yield from fields(inner, path)
    elif isinstance(value, list) and prefix != "nics[].gids":
        for inner in value:
            yield from fields(inner, prefix + "[]")
    else:
        yield prefix


def run(program, *arguments, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def check(condition, complaint, result):
    if not condition:
        raise SystemExit(f"{complaint}\nexit status {result.returncode}\n{result.stdout}\n{result.stderr}")


def main():
    program, documentation = sys.argv[1:]
    known = documented(documentation)

    result = run(program, "--json", MSCCLPP_SECRET="not to be printed", NCCL_NVLS_ENABLE="0")
    check(result.returncode == 0 and result.stderr == "", "--json failed", result)
    check("not to be printed" not in result.stdout, "the secret is printed", result)
    report = json.loads(result.stdout)
    found = set(fields(report))
    check(found <= known, f"fields that docs/info.md lacks: {sorted(found - known)}", result)
    # Fields of a list's elements are there if it has elements, and those of `links` if NVML tells of links.
    optional = ("gpus[]", "pairs[]", "nics[]", "interHost[]")
    lists = {field.split("[]")[0] for field in known if field.startswith(optional)}
    empty = {name for name in lists if not report[name]}
    absent = (field for field in known - found if not field.startswith(("gpus[].links", "nics[]")))
    missing = {field for field in absent if field.split("[]")[0] not in empty}
    check(not missing, f"documented fields that are missing: {sorted(missing)}", result)
    check(isinstance(report["host"]["cpus"], int) and report["host"]["cpus"] > 0, "host.cpus", result)
    check(report["environment"]["MSCCLPP_SECRET"] == "(set)", "environment", result)
    multicast = any(gpu["multicast"]["used"] for gpu in report["gpus"])
    check(not multicast, "multicast in spite of NCCL_NVLS_ENABLE=0", result)
    check(bool(report["gpus"]) or report["cuda"]["error"], "no GPU, and no reason given", result)
    check(len(report["pairs"]) == len(report["gpus"]) * (len(report["gpus"]) - 1), "a pair is missing", result)
    check(len(report["interHost"]) == max(1, len(report["gpus"])), "an entry of interHost is missing", result)

    result = run(program)
    check(result.returncode == 0, "the text failed", result)
    for what in ("CUDA:", "CPU ranks of this host: SharedMemory", "between hosts"):
        check(what in result.stdout, f"the text does not say '{what}'", result)
    if not report["gpus"]:
        check("no GPU" in result.stdout, "the text does not say that there is no GPU", result)

    result = run(program, MSCCLPP_WAIT_TIMEOUT="soon")
    check(result.returncode == 1 and "MSCCLPP_WAIT_TIMEOUT" in result.stderr, "a wrong variable goes unnoticed", result)
    result = run(program, "--json", MSCCLPP_HCA_DEVICES=os.fsdecode(b"\xff"))
    check(result.returncode == 0, "a variable that is no UTF-8 spoils the JSON", result)
    check("MSCCLPP_HCA_DEVICES" in json.loads(result.stdout)["environment"], "environment", result)
    with open("/dev/full", "wb") as full:
        status = subprocess.run([program, "--json"], stdout=full, stderr=subprocess.DEVNULL, timeout=60).returncode
    check(status == 1, "output that is lost goes unnoticed", result)
    result = run(program, "--no-such-option")
    check(result.returncode != 0, "an unknown option goes unnoticed", result)
    print(f"{len(found)} fields are as documented")


if __name__ == "__main__":
    main()
