#!/usr/bin/env python3
"""Compares the PTX that nvcc generates for a source with the instructions that its comments expect. Needs no GPU.

usage: ptx.py [--assemble] SOURCE.cu -- NVCC ARGUMENT...      |      ptx.py --self

The comments after the line that names a kernel (`__global__ void name(`) apply to that kernel:
  // PTX: REGEX        a line of its PTX, after those of the PTX comments before
  // PTX-NOT: REGEX    no line of its PTX
  // PTX-SAME: KERNEL  its PTX is that of another kernel, but for names
Spaces in a regex match any white space. A kernel without a PTX comment is an error, as is a source without kernels.
--assemble also turns the PTX into machine code: for instructions that no other test compiles, or for another GPU.
"""

import argparse
import re
import subprocess
import sys
import tempfile


def expectations(source):
    """Returns kernel name -> [(line number, kind, text)]; kind: "", "-NOT" or "-SAME"."""
    found, name = {}, None
    for number, line in enumerate(source.splitlines(), 1):
        kernel = re.search(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(", line)
        if kernel:
            name = kernel.group(1)
            found[name] = []
        comment = re.search(r"//\s*PTX(-NOT|-SAME)?:\s*(.+?)\s*$", line)
        if comment:
            if name is None:
                raise SystemExit(f"line {number}: a PTX comment stands after the kernel that it is about")
            found[name].append((number, comment.group(1) or "", comment.group(2)))
    return found


def kernels(ptx):
    """Returns the lines of each kernel: entry name -> lines."""
    found, lines = {}, None
    for line in ptx.splitlines():
        entry = re.search(r"\.entry\s+([\w$]+)", line)
        if entry:
            lines = found.setdefault(entry.group(1), [])
        elif line == "}":
            lines = None
        elif lines is not None:
            lines.append(line.strip())
    return found


def check(source, ptx):
    """Yields a message for each expectation that the PTX does not meet."""
    bodies = kernels(ptx)
    wanted = expectations(source)

    def body_of(name):
        # A name in a namespace is mangled; its length stands in front of it.
        return bodies.get(name) or next((b for n, b in bodies.items() if f"{len(name)}{name}" in n), None)

    if not wanted:
        yield "no kernel in this source"
    for name, comments in wanted.items():
        body = body_of(name)
        if body is None:
            yield f"{name}: not in the PTX"
        elif all(kind == "-NOT" for _, kind, _ in comments):
            yield f"{name}: expects nothing"
        else:
            yield from check_kernel(name, comments, body, body_of)


def normalized(body, name):
    """Lines without what differs between equal kernels: comments, label numbers, parameter names."""
    text = re.sub(r"//.*", "", "\n".join(body))
    return re.sub(r"\bL__BB\d+_", "L__BB_", re.sub(rf"\b\w*{name}\w*_param_", "param_", text))


def check_kernel(name, comments, body, body_of):
    at = 0
    for number, kind, text in comments:
        if kind == "-SAME":
            other = body_of(text)
            if other is None or normalized(body, name) != normalized(other, text):
                yield f"{name}, line {number}: not the PTX of {text}\n  but\n    " + "\n    ".join(body)
            continue
        expression = re.compile(re.sub(r"\s+", r"\\s+", text))
        if kind == "":
            match = next((i for i in range(at, len(body)) if expression.search(body[i])), None)
            if match is None:
                rest = "\n    ".join(body[at:])
                yield f"{name}, line {number}: expected {text}\n  in\n    {rest}"
                return
            at = match + 1
        else:
            for line in filter(expression.search, body):
                yield f"{name}, line {number}: did not expect {text}\n  in {line}"


def self_test():
    ptx = ".visible .entry k(\n.param .u64 p\n)\n{\n"
    ptx += " ld.global.u32 %r1, [%rd1];\n st.global.u32 [%rd1], %r1;\n ret;\n}\n"
    kernel = "__global__ void k(int* p) {\n"
    good = [kernel + "// PTX: ld.global.u32 .*\n// PTX: st.global\n// PTX-NOT: atom\n"]
    identical_kernels = ptx + ptx.replace(" k(", " q(") + ptx.replace(" k(", " r(").replace("st.", "red.")
    same = kernel + "// PTX: ld.global\n__global__ void q(int* p) {\n// PTX-SAME: k\n"
    bad = [
        "",  # no kernel
        kernel,  # no expectation
        kernel + "// PTX-NOT: atom\n",  # nothing that must be there
        kernel + "// PTX: atom\n",  # not there
        kernel + "// PTX: st.global\n// PTX: ld.global\n",  # other order
        kernel + "// PTX: ld.global\n// PTX: ld.global\n",  # once only
        kernel + "// PTX: ld.global\n// PTX-NOT: st.global\n",  # there
        kernel.replace("k(", "q(") + "// PTX: ld\n",  # other kernel
    ]
    failures = [f"rejected a good sample: {list(check(text, ptx))}" for text in good if list(check(text, ptx))]
    failures += ["rejected identical kernels"] if list(check(same, identical_kernels)) else []
    for other in ("r", "missing"):
        if not list(check(same.replace("SAME: k", f"SAME: {other}"), identical_kernels)):
            failures.append(f"accepted {other} as identical")
    failures += [f"accepted a bad sample: {text!r}" for text in bad if not list(check(text, ptx))]
    print("\n".join(failures) if failures else "unmet expectations are detected")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self", action="store_true", dest="self_test")
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("source", nargs="?")
    parser.add_argument("compiler", nargs="*")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    with tempfile.NamedTemporaryFile(suffix=".ptx") as output:
        subprocess.run(options.compiler + ["-ptx", "-o", output.name, options.source], check=True)
        ptx = output.read().decode()
        if options.assemble:
            subprocess.run(options.compiler + ["-cubin", "-o", output.name, options.source], check=True)
    with open(options.source, encoding="utf-8") as file:
        source = file.read()
    failures_found = list(check(source, ptx))
    print("\n".join(failures_found) if failures_found else f"{len(expectations(source))} kernels are as expected")
    return 1 if failures_found else 0


if __name__ == "__main__":
    sys.exit(main())
