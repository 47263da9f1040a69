"""The house rules that a program can check. Each rule is a function of the tree and yields findings.

A tree maps a path (relative to the repository, with /) to the text of the file. A finding is "path:line: sentence".
"""

import ast
import re

HEADERS = (".hpp", ".cuh")
SOURCES = (".cpp", ".cu")
CODE = HEADERS + SOURCES
INCLUDE = "include/mscclpp/"
COMPAT = "compat/include/mscclpp/"
COMPAT_CHOICE = COMPAT + "bulk_device.hpp"  # a macro of MSCCL++ that depends on the GPU
ARCHITECTURE = "docs/architecture.md"

# The rooms (folders) of the host part, from the bottom up; docs/architecture.md says what each holds.
HOST = (
    "base",
    "net",
    "cuda",
    "bootstrap",
    "launch",
    "memory",
    "transport",
    "trace",
    "communicator",
    "channel",
    "proxy",
)
# Layers from the bottom up: a file may include its own layer and those before it. First match wins.
LAYERS = [
    (INCLUDE + "config.hpp",),
    (INCLUDE + "arch/",),
    (INCLUDE + "basic/",),
    (INCLUDE + "packet/", INCLUDE + "sync/"),
    (INCLUDE + "channel/",),
    (INCLUDE + "collective/",),
    (INCLUDE + "fusion/", INCLUDE + "plan/"),
    (INCLUDE + "moe/",),
    *[tuple(f"{root}{name}/" for root in (INCLUDE + "host/", "host/") for name in level.split()) for level in HOST],
    (INCLUDE + "collective_kernel.cuh",),
    (INCLUDE + "kernel.cuh", INCLUDE + "emulation/"),
    (INCLUDE, "compat/", "kernels/"),
    ("examples/", "bench/", "tools/", "python/", "tests/"),
]


def layer(path):
    """The number of a file's layer, or None for a file that belongs to none."""
    for number, prefixes in enumerate(LAYERS):
        if path.startswith(prefixes):
            return number
    return None


def code(text):
    """The text with comments and string contents blanked out; line numbers stay."""
    comment, raw_string = r"//[^\n]*|/\*.*?\*/", r'R"(\w*)\(.*?\)\1"'
    string, character = r'"(?:\\.|[^"\\\n])*"', r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
    token = re.compile("|".join((comment, raw_string, string, character)), re.S)

    def blank(match):
        found = match.group(0)
        return '""' + "\n" * found.count("\n") if found[0] in "\"R" else re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


def includes(text):
    """Yields (line number, name, quoted) for each #include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2), match.group(1) is not None


def matches(tree, pattern, sentence, applies):
    """Yields a finding for each match of a pattern in the code of the files that `applies` selects."""
    expression = re.compile(pattern)
    for path, text in tree.items():
        if path.endswith(CODE) and applies(path):
            for number, line in enumerate(code(text).splitlines(), 1):
                found = expression.search(line)
                if found:
                    yield f"{path}:{number}: {found.group(0).strip()}: {sentence}"


def is_library_code(path):
    """Whether a file is part of what users link or include, as opposed to tests, benchmarks and examples."""
    return path.startswith((INCLUDE, "host/", "kernels/", "compat/"))


def layering(tree):
    """An include only points down the layers."""
    for path, text in tree.items():
        own = layer(path)
        if own is None or not path.endswith(CODE):
            continue
        for number, name, _ in includes(text):
            target = layer("include/" + name if name.startswith("mscclpp/") else name)
            if target is not None and target > own:
                yield f"{path}:{number}: includes {name}, which is in a higher layer (docs/architecture.md)"


def acyclic(tree):
    """No header includes itself by a detour."""
    graph = {
        path: ["include/" + name for _, name, _ in includes(text) if name.startswith("mscclpp/")]
        for path, text in tree.items()
        if path.startswith(INCLUDE)
    }
    done = set()

    def visit(path, trail):
        if path in trail:
            yield f"{path}:1: includes itself: {' -> '.join(trail[trail.index(path):] + [path])}"
        elif path not in done:
            for target in graph.get(path, []):
                yield from visit(target, trail + [path])
            done.add(path)

    for path in graph:
        yield from visit(path, [])


def include_paths(tree):
    """Headers of other folders are included by their path: below include/, or in the repository if they are private."""
    for path, text in tree.items():
        if not path.endswith(CODE):
            continue
        for number, name, quoted in includes(text):
            if ".." in name.split("/"):
                yield f"{path}:{number}: includes {name}: no relative paths"
            elif name.startswith(("host/", "tests/")) and name not in tree:
                yield f"{path}:{number}: includes {name}, which does not exist"
            elif path.startswith("host/") and quoted and not name.startswith(("host/", "mscclpp/")):
                yield f'{path}:{number}: includes {name}: write "host/..."'
            elif path.startswith(INCLUDE) and quoted and not name.startswith("mscclpp/"):
                yield f'{path}:{number}: includes {name}: write "mscclpp/..."'
            elif name.startswith("mscclpp/") and not {"include/" + name, "compat/include/" + name} & tree.keys():
                yield f"{path}:{number}: includes {name}, which does not exist"


INSTRUCTIONS = (
    r"\basm\b|\b__asm(?:__)?\b|\b__CUDA_ARCH__\b|\bNV_(?:IF|IF_ELSE|DISPATCH)_TARGET\b|\bNV_IS_\w+"
    r"|\b__(?:shfl|ballot|any|all|match|reduce|activemask|syncwarp|syncthreads|threadfence|nanosleep|fns)\w*\s*\("
    r"|\b__(?:ld|st)(?:g|cg|ca|cs|lu|cv|wb|wt)\s*\(|\b__cvta_\w+|\batomic(?:Add|Sub|Exch|CAS|Min|Max|And|Or|Xor|Inc|Dec)\w*\s*\("
    r"|\bclock(?:64)?\s*\(\s*\)|\b__globaltimer\w*|\b_mm\d*_\w+|\b__builtin_ia32_\w+|\b__trap\b|\b__isGlobal\b"
)


ALLOWED_INSTRUCTIONS = (INCLUDE + "arch/", INCLUDE + "config.hpp", COMPAT_CHOICE)


def instructions(tree):
    """Instructions live in arch/, each as a named function with a host implementation."""
    return matches(
        tree,
        INSTRUCTIONS,
        "instructions and the choice between GPU and CPU belong in include/mscclpp/arch/",
        lambda path: is_library_code(path) and not path.startswith(ALLOWED_INSTRUCTIONS),
    )


def thread_indices(tree):
    """Code above basic/ learns its thread and block index from a group."""
    return matches(
        tree,
        r"(?<![.>\w])(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b",
        "only basic/group.hpp reads it; take a group as an argument",
        lambda path: is_library_code(path) and path != INCLUDE + "basic/group.hpp",
    )


def kernels(tree):
    """There is one kernel template."""
    return matches(
        tree,
        r"\b__global__\b",
        "the only kernel template is in include/mscclpp/collective_kernel.cuh",
        lambda path: path.startswith((INCLUDE, "host/", "compat/")) and path != INCLUDE + "collective_kernel.cuh",
    )


# Macros of the public host header that users know from MSCCL++.
HOST_MACROS = {"MSCCLPP_CUDATHROW", "MSCCLPP_CUTHROW"}
COMPAT_MACROS = {"POLL_MAYBE_JAILBREAK", "OR_POLL_MAYBE_JAILBREAK", "CUDA_NVLS_API_AVAILABLE", "__FP8_TYPES_EXIST__",
                 "__syncshm"}


def macros(tree):
    """Macros are few: in headers they live in config.hpp, and all of them start with MSCCLPP_.

    A header of arch/ may stamp out its functions with a macro that it undefines again.
    """
    for path, text in tree.items():
        if not path.endswith(CODE):
            continue
        local = set(re.findall(r"#\s*undef\s+(\w+)", text)) if path.startswith(INCLUDE + "arch/") else set()
        for number, line in enumerate(code(text).splitlines(), 1):
            match = re.match(r"\s*#\s*define\s+(\w+)", line)
            if not match:
                continue
            name = match.group(1)
            if path.startswith(INCLUDE) and path != INCLUDE + "config.hpp" and name not in HOST_MACROS | local:
                yield f"{path}:{number}: {name}: headers define macros in include/mscclpp/config.hpp only"
            elif path.startswith(COMPAT) and name in COMPAT_MACROS:
                continue
            elif is_library_code(path) and not name.startswith("MSCCLPP_"):
                yield f"{path}:{number}: {name}: macros start with MSCCLPP_"


VAGUE = {"util", "utils", "helper", "helpers", "common", "impl", "misc"}
EXTENSIONS = (".cpp", ".cu", ".hpp", ".cuh")
NAMED_BY_MSCCLPP = (COMPAT, "python/mscclpp/utils.py")
FOREIGN_EXTENSIONS = (".cc", ".cxx", ".c", ".h", ".hh", ".hxx", ".inl", ".ipp", ".tpp")


def file_names(tree):
    """Names are snake_case, say what is inside, and end in one of four ways."""
    for path in tree:
        folder, _, name = path.rpartition("/")
        stem, dot, extension = name.partition(".")
        if path.endswith(FOREIGN_EXTENSIONS):
            yield f"{path}:1: sources end in {', '.join(EXTENSIONS)}"
        elif path.endswith(CODE + (".py",)) and not re.fullmatch(r"[a-z0-9_]+", stem):
            yield f"{path}:1: file names are snake_case"
        elif path.startswith(NAMED_BY_MSCCLPP):
            continue
        elif VAGUE & set(stem.lower().split("_")) or VAGUE & set(folder.split("/")):
            yield f"{path}:1: name a file after its one idea, not {' '.join(sorted(VAGUE))}"


def first_lines(tree):
    """A header's first line is a comment that says which idea it is; then comes #pragma once."""
    for path, text in tree.items():
        if not path.endswith(HEADERS):
            continue
        lines = text.splitlines() or [""]
        if not re.match(r"// \S", lines[0]):
            yield f"{path}:1: the first line is a comment that says what the header is for"
        pragma = next((line for line in lines if line and not line.startswith("//")), "")
        if pragma != "#pragma once":
            yield f"{path}:1: `#pragma once` follows the opening comment"


def standard_streams(tree):
    """A library reports by exceptions and through its logger; it neither prints nor ends the process.

    But runRanks is the rest of main(): there is no caller left to throw to, so its launcher prints why a rank failed.
    """
    return matches(
        tree,
        r"\bstd::c(?:out|err)\b|\b(?:f|v)?printf\s*\(|(?<![\w.>:])exit\s*\(|\bstd::(?:exit|abort|quick_exit|terminate)\s*\(",
        "throw an Error or use the logger",
        lambda path: path.startswith((INCLUDE + "host/", "host/", "kernels/"))
        and path != "host/launch/rank_launcher.cpp",
    )


def rooms(tree):
    """Host code lies in a room, which docs/architecture.md lists; tests/host/ has no other folders."""
    names = {name for level in HOST for name in level.split()}
    documented = tree.get(ARCHITECTURE, "")
    missing = set()
    for path in tree:
        for root in ("host/", INCLUDE + "host/", "tests/host/"):
            if not path.startswith(root) or not path.endswith(CODE):
                continue
            room, _, rest = path[len(root) :].partition("/")
            if not rest and root != "tests/host/":
                yield f"{path}:1: put it into a room, a folder that {ARCHITECTURE} lists"
            elif rest and room not in names:
                yield f"{path}:1: {root}{room}/ is not a room; {ARCHITECTURE} and tests/lint/rules.py list them"
            elif rest and f"`{room}/`" not in documented:
                missing.add(room)
    yield from (f"{ARCHITECTURE}:1: does not say what the room `{room}/` holds" for room in sorted(missing))


def mirrored_tests(tree):
    """tests/host/ mirrors host/: each of its folders has the name of the folder that it tests."""
    folders = {path.rpartition("/")[0] for path in tree if path.startswith("tests/host/")} - {"tests/host"}
    for folder in sorted(folders):
        tested = folder.removeprefix("tests/") + "/"
        if not any(path.startswith((tested, INCLUDE + tested)) for path in tree):
            yield f"{folder}:1: tests nothing: there is no {tested}"


def layers_documented(tree):
    """The README of the headers names each of their folders."""
    readme = tree.get(INCLUDE + "README.md", "")
    folders = {path[len(INCLUDE):].split("/")[0] for path in tree if path.startswith(INCLUDE) and path.count("/") > 2}
    for folder in sorted(folders):
        if f"{folder}/" not in readme:
            yield f"{INCLUDE}README.md:1: does not mention {folder}/"


KNOWN_HOSTS = {
    "github.com",
    "docs.nvidia.com",
    "localhost",
    "127.0.0.1",
    "mesonbuild.com",
    "man7.org",
    "ui.perfetto.dev",
    "www.rfc-editor.org",
    "www.w3.org",
}


def portable(tree):
    """Nothing points into one person's machine or at hosts other than public documentation."""
    for path, text in tree.items():
        if path.startswith("tests/lint/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            home = re.search(r"(?<![\w.)}*/-])/(?:home|root|work|Users|mnt|scratch)/(?!someone\b)\w+", line)
            if home:
                yield f"{path}:{number}: {home.group(0)}: a path of one machine"
            for host in re.findall(r"https?://([\w.-]+)", line):
                if host not in KNOWN_HOSTS:
                    yield f"{path}:{number}: {host}: not among the known documentation hosts (tests/lint/rules.py)"


LIMIT = 120


def line_length(tree):
    """Lines end at column 120, where clang-format ends code; tables and lines that cannot be broken may be longer."""
    for path, text in tree.items():
        if not path.endswith(CODE + (".py", ".build", ".md", ".in", ".sh")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            breakable = " " in line.strip().removeprefix("//").strip() and not line.lstrip().startswith(("|", "// PTX"))
            if len(line) > LIMIT and breakable and "://" not in line:
                yield f"{path}:{number}: {len(line)} columns; the limit is {LIMIT}"


def plain_text(tree):
    """Files are UTF-8 without smart quotes, tabs in code, trailing spaces or a missing last newline."""
    for path, text in tree.items():
        for number, line in enumerate(text.splitlines(), 1):
            if re.search("[\u2018\u2019\u201c\u201d\u00a0]", line):
                yield f"{path}:{number}: smart quote or no-break space"
            if path.endswith(CODE + (".py", ".build")) and "\t" in line:
                yield f"{path}:{number}: tab"
            if path.endswith(CODE + (".py", ".build", ".md")) and line != line.rstrip():
                yield f"{path}:{number}: trailing space"
        if text and not text.endswith("\n"):
            yield f"{path}:{text.count(chr(10)) + 1}: no newline at the end"


# The oldest Python that the package runs in, and names of the standard library that came later.
OLDEST_PYTHON = (3, 10)
LATER_NAMES = {
    "asyncio": {"TaskGroup", "Runner", "timeout"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "ReprEnum", "verify"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "tomllib": set(),
    "typing": {
        "LiteralString", "Never", "NotRequired", "Required", "Self", "TypeAliasType", "TypeVarTuple", "Unpack",
        "assert_never", "assert_type", "override", "reveal_type",
    },
    "warnings": {"deprecated"},
}  # fmt: skip


def oldest_python(tree):
    """What a wheel holds is in the syntax, and imports the names, of the oldest Python that it is for."""
    version = ".".join(map(str, OLDEST_PYTHON))
    for path, text in tree.items():
        if not (path.startswith("python/mscclpp/") and path.endswith(".py")):
            continue
        try:
            module = ast.parse(text, feature_version=OLDEST_PYTHON)
        except SyntaxError as error:
            yield f"{path}:{error.lineno}: {error.msg} (Python {version})"
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                found = [each.name for each in node.names if not LATER_NAMES.get(each.name, {each.name})]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in LATER_NAMES:
                later = LATER_NAMES[node.module]
                found = [f"{node.module}.{each.name}" for each in node.names if each.name in later or not later]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                found = [name] if node.attr in LATER_NAMES.get(node.value.id, ()) else []
            else:
                continue
            yield from (f"{path}:{node.lineno}: Python {version} has no {name}" for name in found)


RULES = [
    layering,
    acyclic,
    include_paths,
    instructions,
    thread_indices,
    kernels,
    macros,
    file_names,
    first_lines,
    standard_streams,
    rooms,
    mirrored_tests,
    layers_documented,
    portable,
    line_length,
    plain_text,
    oldest_python,
]
