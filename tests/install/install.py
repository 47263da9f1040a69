#!/usr/bin/env python3
"""Installs a build into a temporary folder, and builds and runs a small consumer in one of three ways.

usage: install.py command-line|pkg-config|cmake|subproject --meson MESON --build BUILD_FOLDER --toolkit CUDA_TOOLKIT
"""

import argparse
import os
import pathlib
import shlex
import shutil
import sys
import tempfile

from quiet_run import run

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONSUMER = HERE / "consumer"
PACKAGES = {"headers_only": "mscclpp", "with_host": "mscclpp-host", "with_kernels": "mscclpp-kernels",
            "with_jit": "mscclpp-jit", "with_plan": "mscclpp-executor",
            "with_nccl_names": "mscclpp-nccl", "with_mscclpp_names": "mscclpp-compat"}


def install(meson, build, folder):
    """Installs into folder and returns the prefix there."""
    run(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)
    return next(folder.rglob("include/mscclpp")).parents[1]


def by_command_line(meson, build, folder, toolkit):
    """As the build lines of programs for MSCCL++ do: include folders, -L, and -lmscclpp."""
    prefix = install(meson, build, folder)
    library = next(prefix.rglob("libmscclpp.a"))
    includes = (prefix / "include/mscclpp-compat", prefix / "include", f"{toolkit}/include/cccl", f"{toolkit}/include")
    program = folder / "with_mscclpp_names"
    run("g++", "-std=c++20", *(f"-I{path}" for path in includes), CONSUMER / f"{program.name}.cpp", "-o", program,
        f"-L{library.parent}", "-lmscclpp")
    return [program]


def by_pkg_config(meson, build, folder, _):
    prefix = install(meson, build, folder)
    pc_folder = next(prefix.rglob("mscclpp.pc")).parent
    environment = os.environ | {"PKG_CONFIG_PATH": str(pc_folder)}
    for program, package in PACKAGES.items():
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", package, env=environment))
        warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
        run_path = f"-Wl,-rpath,{pc_folder.parent}"  # of the one that is shared
        run("g++", "-std=c++20", *warnings, CONSUMER / f"{program}.cpp", "-o", folder / program, *flags, run_path)
    return [folder / program for program in PACKAGES]


def by_cmake(meson, build, folder, _):
    prefix = install(meson, build, folder)
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", folder / "out", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "out")
    return [folder / "out" / program for program in PACKAGES]


def as_subproject(meson, _, folder, toolkit):
    shutil.copytree(CONSUMER, folder / "consumer")
    (folder / "consumer/subprojects").mkdir()
    (folder / "consumer/subprojects/mscclpp").symlink_to(ROOT)
    options = (f"-Dtoolkit_dir={toolkit}", "-Doptimization=0", "-Ddebug=false")
    run(meson, "setup", folder / "out", folder / "consumer", *options)
    targets = run("ninja", "-C", folder / "out", "-t", "targets", "all")
    if "doctest_main" in targets:
        raise SystemExit("as a subproject it builds its own tests")
    # Programs that link a library are compiled only: to compile host part and collectives again would take minutes.
    objects = (f"{program}.p/{program}.cpp.o" for program in PACKAGES)
    run("ninja", "-C", folder / "out", *objects, "headers_only")
    return [folder / "out/headers_only"]


METHODS = {"command-line": by_command_line, "pkg-config": by_pkg_config, "cmake": by_cmake, "subproject": as_subproject}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--meson", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--toolkit", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        programs = METHODS[options.method](options.meson, options.build, pathlib.Path(name), options.toolkit)
        for program in programs:
            run(program)
    print(f"a consumer builds and runs: {options.method}")


if __name__ == "__main__":
    sys.exit(main())
