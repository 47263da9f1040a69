"""Sources compiled at run time: forms of modules, the cache, many processes, failures."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import mscclpp
import pytest

# The quickest module there is: its function answers with what a header of the user's says.
PLAIN = """
#include <Python.h>
#include "answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef functions[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "plain", nullptr, -1, functions};
PyMODINIT_FUNC PyInit_plain() { return PyModule_Create(&definition); }
"""

# Notes each compilation, and lasts as long as the file `slow` exists.
COMPILER = """#!/bin/sh
folder=$(dirname "$0")
case " $* " in *" -c "*) echo $$ >> "$folder/compilations"; while [ -e "$folder/slow" ]; do sleep 0.05; done ;; esac
exec g++ "$@"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plain.cpp").write_text(PLAIN)
    (tmp_path / "answer.h").write_text("#define ANSWER 1\n")
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    yield tmp_path
    (tmp_path / "slow").unlink(missing_ok=True)  # a test that failed leaves no compiler behind


def start(folder, program, **variables):
    """Runs a program in `folder`, with a cache of its own, since a process reads the environment once."""
    variables = {"CXX": str(folder / "compiler"), "MSCCLPP_CACHE_DIR": str(folder / "cache"), **variables}
    imports = f"import mscclpp, os, sys\nfrom mscclpp import compile_native\nos.chdir({str(folder)!r})\n"
    return subprocess.Popen(
        [sys.executable, "-c", imports + textwrap.dedent(program)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out.split("\n")[:-1]


def run(folder, program, **variables):
    return finish(start(folder, program, **variables))


def compilations(folder):
    file = folder / "compilations"
    return len(file.read_text().split()) if file.exists() else 0


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


USE = "print(compile_native('plain', 'plain.cpp').answer())"


def test_eight_processes_compile_once(folder):
    (folder / "slow").touch()
    processes = [start(folder, USE) for _ in range(8)]
    wait_for(lambda: compilations(folder) > 0)
    time.sleep(1)  # for those that would compile too
    (folder / "slow").unlink()
    assert [finish(process) for process in processes] == [["1"]] * 8
    assert compilations(folder) == 1
    assert run(folder, USE) == ["1"] and compilations(folder) == 1


def test_what_changes_is_compiled_again(folder):
    assert run(folder, USE) == ["1"]
    (folder / "answer.h").write_text("#define ANSWER 2\n")
    # In one process, too: with another header, another option, another source, and with the first header again.
    program = f"""
        {USE}
        open("answer.h", "w").write("#define ANSWER 3\\n")
        {USE}
        print(compile_native("plain", "plain.cpp", options=["-DANSWER=4", "-include", "stddef.h", "-w"]).answer())
        open("plain.cpp", "a").write("// more")
        {USE}
        print(compile_native("plain", "plain.cpp") is sys.modules["plain"])
        open("answer.h", "w").write("#define ANSWER 2\\n")
        {USE}
    """
    assert run(folder, program) == ["2", "3", "3", "3", "True", "2"]
    assert compilations(folder) == 6
    (folder / "other").mkdir()
    (folder / "other" / "answer.h").write_text("#define ANSWER 5\n")
    code = f"print(compile_native('plain', code={PLAIN!r}, include_dirs=['other']).answer())"
    assert run(folder, code) == ["5"] and compilations(folder) == 7


def test_a_compilation_is_killed(folder):
    (folder / "slow").touch()
    process = start(folder, USE)
    wait_for(lambda: compilations(folder) > 0)
    process.kill()
    process.communicate()
    waiting = start(folder, USE)
    wait_for(lambda: compilations(folder) > 1)  # the lock is free, although the first compiler still runs
    (folder / "slow").unlink()
    assert finish(waiting) == ["1"]
    assert [path.name for path in (folder / "cache" / "native").glob("*.tmp*")] == []
    assert run(folder, USE) == ["1"] and compilations(folder) == 2


def test_an_interrupted_compilation_ends_its_compiler(folder):
    (folder / "slow").touch()
    process = start(folder, USE)
    wait_for(lambda: compilations(folder) > 0)
    compiler = int((folder / "compilations").read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    wait_for(lambda: not pathlib.Path(f"/proc/{compiler}").exists())
    assert list((folder / "cache" / "native").glob("*.tmp*")) == []


def test_a_damaged_module_is_compiled_again(folder):
    assert run(folder, USE) == ["1"]
    for module in (folder / "cache" / "native").glob("*.so"):
        module.write_bytes(module.read_bytes()[:1000])
    assert run(folder, USE) == ["1"] and compilations(folder) == 2
    for entry in (folder / "cache" / "native").glob("*.json"):
        entry.write_text("{")
    assert run(folder, USE) == ["1"] and compilations(folder) == 3


def test_a_folder_of_others_is_not_used(folder):
    (folder / "cache" / "native").mkdir(parents=True)
    (folder / "cache" / "native").chmod(0o777)
    process = start(folder, USE)
    out, err = process.communicate(timeout=60)
    assert out == "1\n" and "RuntimeWarning: compiled modules are not kept: other users can write" in err
    assert list((folder / "cache" / "native").iterdir()) == []


def failure(call):
    return f"""
        try:
            {call}
        except mscclpp.Error as error:
            print(type(error).__name__, str(error).replace("\\n", " "))
    """


def test_a_source_that_does_not_compile(folder):
    (folder / "plain.cpp").write_text(PLAIN.replace("ANSWER)", "ANSWERS)"))
    (text,) = run(folder, failure(USE))
    assert text.startswith("InvalidUsage") and "plain.cpp:4:" in text and "ANSWERS" in text
    assert list((folder / "cache" / "native").glob("*.json")) == []


@pytest.mark.parametrize(
    "call, sentence",
    [
        ("compile_native('other', 'plain.cpp')", "PyInit_other"),
        ("compile_native('plain', code='extern int missing(); int f() { return missing(); }')", "missing"),
        ("compile_native('plain', 'plain.cpp', compiler='no-such-compiler')", "no such program"),
        ("compile_native('plain', 'nothing.cpp')", "No such file"),
        ("compile_native('no-name', 'plain.cpp')", "name of the module"),
        ("compile_native('plain')", "one of file and code"),
        ("compile_native('pathlib', 'plain.cpp')", "another module pathlib"),
        ("compile_native('plain', code='__global__ void f();\\n#define PYBIND11_MODULE', compiler='c++')", "need nvcc"),
    ],
)
def test_wrong_uses(folder, call, sentence):
    (text,) = run(folder, failure(call))
    assert text.startswith("InvalidUsage") and sentence in text, text


def test_a_compiler_that_does_not_end(folder):
    (folder / "slow").touch()
    (text,) = run(folder, failure("compile_native('plain', 'plain.cpp', timeout=1)"))
    assert text.startswith("Timeout") and "has not ended in time" in text
    holder = start(folder, USE)
    wait_for(lambda: compilations(folder) > 1)
    (text,) = run(folder, failure("compile_native('plain', 'plain.cpp', timeout=1)"))
    assert text.startswith("Timeout") and "another process" in text
    (folder / "slow").unlink()
    finish(holder)


def test_no_compiler(folder):
    (text,) = run(folder, failure(USE), CXX="", PATH="/nowhere")
    assert text.startswith("Error") and "install g++" in text


# A module uses the library of the package: what it adds to the builder of the process, Python sees.
ADDS_A_BUILDER = """
#include <mscclpp/algorithm.hpp>
#include <mscclpp/core.hpp>
struct Builder : mscclpp::AlgorithmBuilder {
  std::shared_ptr<mscclpp::Algorithm> build() override {
    const auto kernel = [](auto&&...) { return mscclpp::CommResult::CommSuccess; };
    return std::make_shared<mscclpp::NativeAlgorithm>("mine", "allreduce", nullptr, kernel, nullptr, nullptr);
  }
};
std::size_t hashed = std::hash<mscclpp::AlgorithmCtxKey>()({});
void add() {
  mscclpp::collective::AlgorithmCollectionBuilder::getInstance()->addAlgorithmBuilder(std::make_shared<Builder>());
}
void fail() { throw mscclpp::Error("of the module", mscclpp::ErrorCode::InvalidUsage); }
"""

FUNCTIONS = '{ m.def("add", add); m.def("fail", fail); }'
MODULES = {
    "pybind11": "#include <pybind11/pybind11.h>\nPYBIND11_MODULE(mine, m)" + FUNCTIONS,
    "nanobind": "#include <nanobind/nanobind.h>\nNB_MODULE(mine, m)" + FUNCTIONS,
}


@pytest.mark.parametrize("binding", MODULES)
def test_bindings(folder, binding):
    pytest.importorskip(binding)
    (folder / "mine.cpp").write_text(ADDS_A_BUILDER + MODULES[binding])
    program = """
        mine = compile_native("mine", "mine.cpp", options=["-O0"])
        mine.add()
        print([algorithm.name for algorithm in mscclpp.AlgorithmCollectionBuilder().build()])
        try:
            mine.fail()
        except RuntimeError as error:
            print(error)
    """
    names, error = run(folder, program)
    assert names == "['mine']" and error.startswith("of the module")


def test_kernels_without_host_code(folder):
    (folder / "factor.h").write_text("#define FACTOR 2\n")
    (folder / "scale.cu").write_text(
        '#include "factor.h"\ntemplate <class T> __global__ void scale(T* data) { data[threadIdx.x] *= FACTOR; }'
    )
    program = """
        try:
            kernels = compile_native("scale", "scale.cu", kernels=["scale<float>"], options=["-arch=compute_90"])
            print(kernels.program.architecture(), "scale" in kernels.program.lowered_name("scale<float>"))
            try:
                kernels.kernel("scale<double>")
            except mscclpp.InvalidUsage as error:
                print(error)
        except mscclpp.Error as error:
            assert error.code == mscclpp.ErrorCode.SystemError
            print("no NVRTC", error)
    """
    first, *rest = run(folder, program)
    if first.startswith("no NVRTC"):
        pytest.skip(first)
    assert first == "compute_90 True" and "scale<double>" in rest[0]
    assert compilations(folder) == 0
