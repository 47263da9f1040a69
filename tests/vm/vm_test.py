#!/usr/bin/env python3
"""Tests vm.py: exit status, output, results, the time limit, and that no process is left behind."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

VM = pathlib.Path(__file__).resolve().parent / "vm.py"


def vm(*words, **options):
    command = [sys.executable, VM, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def machines():
    """Ids of the QEMU processes that this script's children have started and that still run."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            if command.startswith(b"qemu-system") and MARK.encode() in command:
                found.append(folder.name)
        except OSError:  # the process has ended
            pass
    return found


# vm.py creates its folders here, so the command line of each QEMU process contains this path.
TEMPORARY = tempfile.TemporaryDirectory(prefix="mscclpp-vm-test-", dir="/var/tmp")
MARK = TEMPORARY.name
ENVIRONMENT = {**os.environ, "MSCCLPP_VM_FOLDER": MARK}


class VmTest(unittest.TestCase):
    def test_status_output_and_results(self):
        with tempfile.TemporaryDirectory() as results:
            command = "echo word; echo $NAME > /run/vm/results/file; ls /sys/class/infiniband; touch /usr/written"
            options = ["--nics", "1", "--results", results, "--env", "NAME=a b"]
            done = vm(*options, "--", "sh", "-c", command + "; exit 7", env=ENVIRONMENT)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertEqual(done.stdout.split(), ["word", "rxe0"])
            self.assertEqual((pathlib.Path(results) / "file").read_text(), "a b\n")
        self.assertFalse(pathlib.Path("/usr/written").exists())
        self.assertEqual(machines(), [])

    def test_time_limit(self):
        start = time.monotonic()
        done = vm("--nics", "0", "--timeout", "3", "--", "sleep", "100", env=ENVIRONMENT)
        self.assertEqual(done.returncode, 124, done.stderr)
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(machines(), [])

    def test_killed(self):
        with subprocess.Popen([sys.executable, VM, "--nics", "0", "--", "sleep", "100"], env=ENVIRONMENT) as script:
            end = time.monotonic() + 60
            while not machines() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(len(machines()), 1)
            script.kill()
        end = time.monotonic() + 10
        while machines() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(machines(), [])

    def test_without_qemu(self):
        for required, status in (("0", 77), ("1", 1)):
            done = vm("--", "true", env={"PATH": "/nowhere", "MSCCLPP_REQUIRE_VM": required})
            self.assertEqual(done.returncode, status)
            self.assertIn("qemu-system-x86", done.stderr)


if __name__ == "__main__":
    # Downloads and caches the VM's images before the timed tests, and skips if that is not possible.
    ready = vm("--nics", "0", "--", "true", env=ENVIRONMENT)
    if ready.returncode != 0:
        sys.exit(ready.stderr if ready.returncode != 77 else 77)
    unittest.main()
