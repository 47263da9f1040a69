#!/usr/bin/env python3
"""Writes a C++ source that has the texts of the headers which a kernel can include.

usage: embed_headers.py INCLUDE_FOLDER OUTPUT.cpp DEPENDENCIES.d
"""

import pathlib
import sys

# The other headers are for the host, or include the CUDA runtime.
HOST_FOLDERS = ("host", "emulation", "kernels", "jit")
HOST_HEADERS = ("kernel.cuh", "clock_sync.cuh", "core.hpp", "algorithm.hpp")
# Of plan/, what executes plans; the others make and check them.
PLAN_HEADERS = (
    "block_execution.hpp",
    "execution.hpp",
    "interpreter.hpp",
    "message.hpp",
    "operation.hpp",
    "packs.hpp",
    "resolved_program.hpp",
    "specialised.hpp",
    "synchronisation.hpp",
    "transfer.hpp",
)
DELIMITER = "mscclpp_header"


def device_headers(include):
    """Yields the headers of INCLUDE_FOLDER/mscclpp that device code can include."""
    for path in sorted(include.glob("mscclpp/**/*.[hc]*")):
        parts = path.relative_to(include / "mscclpp").parts
        if parts[:2] == ("fusion", "cutlass"):
            continue  # these include headers of CUTLASS, which need the host's standard library
        if parts[0] == "plan" and parts[-1] not in PLAN_HEADERS:
            continue
        if parts[0] not in HOST_FOLDERS + HOST_HEADERS and path.suffix in (".hpp", ".cuh"):
            yield path


def embed(include):
    lines = [
        '#include "kernels/jit/embedded_headers.hpp"',
        "",
        "namespace mscclpp::jit::detail {",
        "",
        "namespace {",
        "",
        "constexpr EmbeddedHeader headers[] = {",
    ]
    for path in device_headers(include):
        text = path.read_text(encoding="utf-8")
        if f"){DELIMITER}" in text:
            raise SystemExit(f"{path} has the delimiter of the generated texts")
        lines.append(f'{{"{path.relative_to(include).as_posix()}", R"{DELIMITER}({text}){DELIMITER}"}},')
    lines += [
        "};",
        "",
        "}  // namespace",
        "",
        "std::span<const EmbeddedHeader> embeddedHeaders() {",
        "  return headers;",
        "}",
        "",
        "}  // namespace mscclpp::jit::detail",
    ]
    return "\n".join(lines) + "\n"


def main(include, output, dependencies):
    include = pathlib.Path(include).resolve()
    headers = list(device_headers(include))
    pathlib.Path(output).write_text(embed(include), encoding="utf-8")
    # The folders too: a new header changes its folder.
    inputs = headers + sorted({path.parent for path in headers} | {include / "mscclpp"})
    escaped = (str(path).replace(" ", "\\ ") for path in inputs)
    pathlib.Path(dependencies).write_text(f"{output}: {' '.join(escaped)}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
