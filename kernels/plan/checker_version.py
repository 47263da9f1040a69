#!/usr/bin/env python3
"""Writes a C++ source with a digest of the checker of plans, so that proofs of another checker are not believed.

usage: checker_version.py SOURCE_FOLDER OUTPUT.cpp DEPENDENCIES.d
"""

import hashlib
import pathlib
import sys


def main(sources, output, dependencies):
    sources = pathlib.Path(sources).resolve()
    headers = sources / "include" / "mscclpp" / "plan"
    compiled = [sources / "kernels" / "plan" / name for name in ("completions.cpp", "simulate.cpp", "verify.cpp")]
    inputs = [*sorted(headers.glob("*.hpp")), *compiled]
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    pathlib.Path(output).write_text(
        '#include "kernels/plan/proofs.hpp"\n\n'
        "namespace mscclpp::plan {\n\n"
        "std::string_view checkerVersion() {\n"
        f'  return "{digest.hexdigest()}";\n'
        "}\n\n"
        "}  // namespace mscclpp::plan\n",
        encoding="utf-8",
    )
    # The folder too: a new header changes it.
    escaped = (str(path).replace(" ", "\\ ") for path in [*inputs, headers])
    pathlib.Path(dependencies).write_text(f"{output}: {' '.join(escaped)}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
