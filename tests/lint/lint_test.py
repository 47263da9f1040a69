#!/usr/bin/env python3
"""Tests each lint rule on a sample that it must reject and one that it must accept.

usage: lint_test.py [--meson MESON]
"""

import argparse
import pathlib
import sys
import tempfile

import docs
import lint
import rules

HEADER = "// What it is for.\n#pragma once\n"
ATOMIC = {"include/mscclpp/arch/atomic.hpp": HEADER}
ENV = {"include/mscclpp/host/base/env.hpp": "// MSCCLPP_AB\n"}
ROOMS = {"docs/architecture.md": "`base/` and `net/`\n"}

# rule -> [(bad tree, good tree)]
SAMPLES = {
    rules.layering: [
        (
            {"include/mscclpp/arch/a.hpp": '#include "mscclpp/basic/group.hpp"\n'},
            {"include/mscclpp/basic/a.hpp": '#include "mscclpp/arch/atomic.hpp"\n'},
        ),
        (
            {"include/mscclpp/sync/a.hpp": "#include <mscclpp/channel/memory_channel.hpp>\n"},
            {"include/mscclpp/sync/a.hpp": "#include <mscclpp/packet/ll8.hpp>\n"},
        ),
        (
            {"host/base/a.cpp": '#include "mscclpp/emulation/launch.hpp"\n'},
            {"host/base/a.cpp": '#include "mscclpp/collective/all_reduce.hpp"\n'},
        ),
        (
            {"include/mscclpp/collective/a.hpp": '#include "mscclpp/host/base/error.hpp"\n'},
            {"include/mscclpp/emulation/a.hpp": '#include "mscclpp/host/base/error.hpp"\n'},
        ),
        (
            {"host/base/a.cpp": '#include "host/net/socket.hpp"\n'},
            {"host/net/a.cpp": '#include "host/base/unique_fd.hpp"\n'},
        ),
        (
            {"include/mscclpp/host/memory/a.hpp": '#include "mscclpp/host/transport/endpoint.hpp"\n'},
            {"host/proxy/a.cpp": '#include "mscclpp/host/channel/memory_channel.hpp"\n'},
        ),
    ],
    rules.oldest_python: [
        (
            {"python/mscclpp/a.py": "try:\n    pass\nexcept* ValueError:\n    pass\n"},
            {"python/mscclpp/a.py": "match 1:\n    case int() | str():\n        pass\n"},
        ),
        (
            {"python/mscclpp/a.py": "def first[T](items: list[T]) -> T: ...\n"},
            {"python/tests/a.py": "def first[T](items: list[T]) -> T: ...\n"},
        ),
        ({"python/mscclpp/a.py": "from typing import Self\n"}, {"python/mscclpp/a.py": "from typing import Any\n"}),
        ({"python/mscclpp/a.py": "import tomllib\n"}, {"python/mscclpp/a.py": "import datetime\n"}),
        (
            {"python/mscclpp/a.py": "import datetime\nx = datetime.UTC\n"},
            {"python/mscclpp/a.py": "import datetime\nx = datetime.timezone.utc\n"},
        ),
    ],
    rules.acyclic: [
        (
            {
                "include/mscclpp/basic/a.hpp": '#include "mscclpp/basic/b.hpp"\n',
                "include/mscclpp/basic/b.hpp": '#include "mscclpp/basic/a.hpp"\n',
            },
            {"include/mscclpp/basic/a.hpp": '#include "mscclpp/basic/b.hpp"\n', "include/mscclpp/basic/b.hpp": "\n"},
        )
    ],
    rules.include_paths: [
        (
            {"include/mscclpp/arch/a.hpp": '#include "../basic/a.hpp"\n'},
            {"kernels/cpu/a.cpp": '#include "kernels/a.hpp"\n'},
        ),
        ({"host/cuda/a.cpp": '#include "driver.hpp"\n'}, {"tests/host/a.cpp": '#include "ranks.hpp"\n'}),
        (
            {"host/cuda/a.cpp": '#include "host/cuda/none.hpp"\n'},
            {"host/cuda/a.cpp": '#include "host/cuda/a.hpp"\n', "host/cuda/a.hpp": ""},
        ),
        ({"include/mscclpp/arch/a.hpp": '#include "atomic.hpp"\n'}, ATOMIC),
        (
            {"tests/a.cpp": "#include <mscclpp/arch/atomc.hpp>\n"} | ATOMIC,
            {"tests/a.cpp": "#include <mscclpp/arch/atomic.hpp>\n"} | ATOMIC,
        ),
    ],
    rules.instructions: [
        ({"include/mscclpp/sync/a.hpp": 'asm volatile("");\n'}, {"include/mscclpp/arch/a.hpp": 'asm volatile("");\n'}),
        (
            {"include/mscclpp/basic/a.hpp": "#ifdef __CUDA_ARCH__\n"},
            {"include/mscclpp/basic/a.hpp": "// no __CUDA_ARCH__\n"},
        ),
        ({"kernels/a.cu": "__syncthreads();\n"}, {"kernels/a.cu": "group.sync();\n"}),
        (
            {"include/mscclpp/packet/a.hpp": "NV_IF_TARGET(NV_IS_DEVICE, (f();))\n"},
            {"bench/a.cu": "__syncthreads();\n"},
        ),
        (
            {"include/mscclpp/packet/a.hpp": "v = __shfl_xor_sync(m, v, 1);\n"},
            {"include/mscclpp/packet/a.hpp": '"asm"\n'},
        ),
        (
            {"include/mscclpp/sync/a.hpp": "atomicAdd(p, 1);\n"},
            {"include/mscclpp/sync/a.hpp": "arch::reduceAdd(p, 1);\n"},
        ),
    ],
    rules.thread_indices: [
        (
            {"include/mscclpp/collective/a.hpp": "if (threadIdx.x == 0) f();\n"},
            {
                "include/mscclpp/basic/group.hpp": "return threadIdx.x;\n",
                "examples/a.cu": "return blockIdx.x;\n",
                "kernels/a.cu": "config.gridDim = 1;\n",
            },
        )
    ],
    rules.kernels: [
        (
            {"include/mscclpp/collective/a.hpp": "template <class T> __global__ void f();\n"},
            {"include/mscclpp/collective_kernel.cuh": "template <class T> __global__ void f();\n"},
        )
    ],
    rules.macros: [
        (
            {"include/mscclpp/basic/a.hpp": "#define MSCCLPP_A 1\n"},
            {"include/mscclpp/config.hpp": "#define MSCCLPP_A 1\n"},
        ),
        (
            {"include/mscclpp/config.hpp": "#define A 1\n"},
            {"include/mscclpp/host/cuda/gpu.hpp": "#define MSCCLPP_CUTHROW(x)\n"},
        ),
        (
            {"include/mscclpp/arch/a.hpp": "#define MSCCLPP_A 1\n"},
            {"include/mscclpp/arch/a.hpp": "#define MSCCLPP_A 1\n#undef MSCCLPP_A\n"},
        ),
        ({"host/a.cpp": "#define CHECK(x) x\n"}, {"tests/a.cpp": "#define DOCTEST_CONFIG_IMPLEMENT\n"}),
    ],
    rules.file_names: [
        ({"include/mscclpp/basic/utils.hpp": ""}, {"include/mscclpp/basic/copy.hpp": ""}),
        ({"python/tests/utils.py": ""}, {"python/mscclpp/utils.py": ""}),
        ({"host/gpu_helpers.cpp": ""}, {"host/gpu_buffer.cpp": ""}),
        ({"host/common/a.cpp": ""}, {"host/cuda/a.cpp": ""}),
        ({"host/TcpBootstrap.cpp": ""}, {"host/bootstrap/tcp_bootstrap.cpp": ""}),
        ({"host/a.cc": ""}, {"host/a.cpp": ""}),
    ],
    rules.first_lines: [
        ({"include/mscclpp/basic/a.hpp": "#pragma once\n"}, {"include/mscclpp/basic/a.hpp": HEADER}),
        (
            {"include/mscclpp/basic/a.hpp": "// A.\n#include <b>\n#pragma once\n"},
            {"include/mscclpp/basic/a.hpp": "// A.\n//\n// More.\n\n#pragma once\n"},
        ),
    ],
    rules.standard_streams: [
        ({"host/a.cpp": "std::cerr << 1;\n"}, {"host/a.cpp": "throw Error(code);\n"}),
        ({"host/a.cpp": "exit(1);\n"}, {"tests/a.cpp": "exit(1);\n"}),
        ({"host/a.cpp": 'printf("x");\n'}, {"bench/a.cpp": 'printf("x");\n'}),
    ],
    rules.rooms: [
        ({"host/a.cpp": ""} | ROOMS, {"host/meson.build": "", "host/base/a.cpp": "", "tests/host/a.hpp": ""} | ROOMS),
        ({"include/mscclpp/host/a.hpp": ""} | ROOMS, {"include/mscclpp/host/net/a.hpp": ""} | ROOMS),
        ({"host/socket/a.cpp": ""} | ROOMS, {"host/net/a.cpp": ""} | ROOMS),
        ({"tests/host/socket/a_test.cpp": ""} | ROOMS, {"tests/host/net/a_test.cpp": ""} | ROOMS),
        ({"host/proxy/a.cpp": ""} | ROOMS, {"host/net/b/a.cpp": ""} | ROOMS),
    ],
    rules.mirrored_tests: [
        (
            {"tests/host/net/a_test.cpp": "", "host/base/a.cpp": ""},
            {"tests/host/net/a_test.cpp": "", "host/net/a.cpp": "", "tests/host/a.hpp": ""},
        ),
        (
            {"tests/host/net/tcp/a_test.cpp": "", "host/net/a.cpp": ""},
            {"tests/host/net/tcp/a_test.cpp": "", "include/mscclpp/host/net/tcp/a.hpp": ""},
        ),
    ],
    rules.layers_documented: [
        (
            {"include/mscclpp/arch/a.hpp": "", "include/mscclpp/README.md": "basic/"},
            {"include/mscclpp/arch/a.hpp": "", "include/mscclpp/README.md": "arch/"},
        )
    ],
    rules.portable: [
        ({"docs/a.md": "see /home/jane/notes\n"}, {"docs/a.md": "see /usr/local/cuda, /home/someone and a/work/b\n"}),
        ({"dev": "curl https://example.org/x\n"}, {"docs/a.md": "https://docs.nvidia.com/cuda\n"}),
    ],
    rules.line_length: [
        ({"host/a.cpp": "// " + "word " * 30 + "\n"}, {"docs/a.md": "| " + "word " * 30 + "|\n"}),
        ({"docs/a.md": "word " * 30 + "\n"}, {"host/a.cpp": "// " + "w" * 130 + "\n"}),
        ({"host/a.cpp": "// word " * 20 + "\n"}, {"tests/ptx/a.cu": "// PTX: " + "word " * 30 + "\n"}),
    ],
    rules.plain_text: [
        ({"a.md": "\u201cquoted\u201d\n"}, {"a.md": '"quoted"\n'}),
        ({"a.cpp": "\tint x;\n"}, {"a.cpp": "  int x;\n"}),
        ({"a.py": "x = 1 \n"}, {"a.py": "x = 1\n"}),
        ({"a.md": "text"}, {"a.md": "text\n"}),
    ],
    docs.links: [
        ({"README.md": "[a](docs/none.md)\n"}, {"README.md": "[a](docs/a.md#x)\n", "docs/a.md": "# x\n"}),
        ({"docs/a.md": "[a](docs/a.md)\n"}, {"docs/a.md": "[a](../README.md) [b](#here)\n# Here\n", "README.md": ""}),
        ({"README.md": "[a](#nowhere)\n# Here\n"}, {"README.md": "[a](#two-words)\n# Two words\n"}),
    ],
    docs.variables: [
        (
            ENV | {"docs/environment.md": "`MSCCLPP_A`, `MSCCLPP_ABC`\n"},
            ENV | {"docs/environment.md": "`MSCCLPP_AB=1`\n"},
        ),
    ],
    docs.headings: [
        ({"docs/a.md": "## A proof " + "word " * 14 + "\nmore\n"}, {"docs/a.md": "## A proof\n" + "word " * 20}),
        ({"docs/a.md": "# " + "w" * 79 + "\n"}, {"docs/a.md": "# " + "w" * 78 + "\n```sh\n# " + "w" * 90 + "\n```\n"}),
    ],
    docs.fences: [
        ({"docs/a.md": "text ```cpp\nint x;\n```\n"}, {"docs/a.md": "text\n```cpp\nint x;\n```\n"}),
        ({"docs/a.md": "```cpp\nint x;\n"}, {"docs/a.md": "- item\n  ```sh\n  ls\n  ```\n"}),
        ({"docs/a.md": "```cpp\nint x;\n```sh\nls\n```\n"}, {"docs/a.md": "```cpp\nint x;\n```\n```sh\nls\n```\n"}),
    ],
    docs.paths: [
        (
            {"README.md": "see `include/mscclpp/none.hpp`\n"},
            {"README.md": "see `docs/`, `host/x_*.cpp`\n", "docs/a.md": "", "host/x_y.cpp": ""},
        ),
    ],
}

# external tool -> (file name, bad text, good text)
TOOL_SAMPLES = {
    lint.check_format: ("a.cpp", "int  x ;\n", "int x;\n"),
    lint.check_build_files: ("meson.build", "project( 'a' )\n", "project('a')\n"),
    lint.check_spelling: ("a.md", "rec" + "ieve\n", "receive\n"),
}


def rule_failures():
    missing = [rule for rule in rules.RULES + docs.RULES if rule not in SAMPLES]
    yield from (f"{rule.__name__}: no sample" for rule in missing)
    for rule, samples in SAMPLES.items():
        for number, (bad, good) in enumerate(samples):
            if not list(rule(bad)):
                yield f"{rule.__name__}, sample {number}: accepted the bad one"
            for finding in rule(good):
                yield f"{rule.__name__}, sample {number}: rejected the good one: {finding}"


def tool_failures(meson):
    with tempfile.TemporaryDirectory() as folder:
        for check, (name, bad, good) in TOOL_SAMPLES.items():
            file = pathlib.Path(folder) / name
            file.write_text(bad)
            if not check(meson, [str(file)]):
                yield f"{check.__name__}: accepted the bad sample"
            file.write_text(good)
            for finding in check(meson, [str(file)]):
                yield f"{check.__name__}: rejected the good sample: {finding}"


def snippet_failures():
    good = "```cpp\n#include <cstddef>\nstd::size_t n = 0;\n```\n"
    if docs.check_snippets({"a.md": good}):
        yield f"check_snippets: rejected the good sample: {docs.check_snippets({'a.md': good})}"
    if not docs.check_snippets({"a.md": good.replace("size_t", "size_u")}):
        yield "check_snippets: accepted the bad sample"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meson", default="meson", type=lint.shutil.which)
    failures = list(rule_failures()) + list(tool_failures(parser.parse_args().meson)) + list(snippet_failures())
    print("\n".join(failures) if failures else "every rule rejects its bad samples and accepts its good ones")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
