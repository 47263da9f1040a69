#!/usr/bin/env python3
"""Installs a build into a temporary folder, and builds and runs a small consumer in one of three ways.

usage: install.py pkg-config|cmake|subproject --meson MESON --build BUILD_FOLDER --toolkit CUDA_TOOLKIT
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONSUMER = HERE / "consumer"
PACKAGES = {"headers_only": "mscclpp", "with_host": "mscclpp-host", "with_kernels": "mscclpp-kernels",
            "with_mscclpp_names": "mscclpp-compat"}


def run(*command, **options):
    """Runs a command; its output is shown only if it fails."""
    command = [str(word) for word in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if result.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}\n{result.stdout}\nexit code {result.returncode}")
    return result.stdout


def install(meson, build, folder):
    """Installs into folder and returns the prefix there."""
    run(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)
    return next(folder.rglob("include/mscclpp")).parents[1]


def by_pkg_config(meson, build, folder, _):
    prefix = install(meson, build, folder)
    pc_folder = next(prefix.rglob("mscclpp.pc")).parent
    environment = os.environ | {"PKG_CONFIG_PATH": str(pc_folder)}
    for program, package in PACKAGES.items():
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", package, env=environment))
        warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
        run("g++", "-std=c++20", *warnings, CONSUMER / f"{program}.cpp", "-o", folder / program, *flags)
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
    run(meson, "setup", folder / "out", folder / "consumer", f"-Dtoolkit_dir={toolkit}")
    targets = run("ninja", "-C", folder / "out", "-t", "targets", "all")
    if "doctest_main" in targets:
        raise SystemExit("as a subproject it brings its tests along")
    programs = ("headers_only", "with_host", "with_mscclpp_names")  # the collectives would take minutes to compile once more
    run("ninja", "-C", folder / "out", *programs)
    return [folder / "out" / program for program in programs]


WAYS = {"pkg-config": by_pkg_config, "cmake": by_cmake, "subproject": as_subproject}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--meson", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--toolkit", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        programs = WAYS[options.way](options.meson, options.build, pathlib.Path(name), options.toolkit)
        for program in programs:
            run(program)
    print(f"a consumer builds and runs: {options.way}")


if __name__ == "__main__":
    sys.exit(main())
