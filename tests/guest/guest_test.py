#!/usr/bin/env python3
"""Checks what guest.py promises: statuses, output, results, the time limit, and that nothing is left behind."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

GUEST = pathlib.Path(__file__).resolve().parent / "guest.py"


def guest(*words, **options):
    return subprocess.run([sys.executable, GUEST, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def machines():
    """Process numbers of the machines that this script's children have started and left."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            if command.startswith(b"qemu-system") and MARK.encode() in command:
                found.append(folder.name)
        except OSError:  # it has just ended
            pass
    return found


# The folders that guest.py makes for a run lie here, and so it is in the command lines of its machines.
TEMPORARY = tempfile.TemporaryDirectory(prefix="mscclpp-guest-test-", dir="/var/tmp")
MARK = TEMPORARY.name
ENVIRONMENT = {**os.environ, "MSCCLPP_GUEST_FOLDER": MARK}


class Guest(unittest.TestCase):
    def test_status_output_and_results(self):
        with tempfile.TemporaryDirectory() as results:
            command = "echo word; echo $NAME > /run/guest/results/file; ls /sys/class/infiniband; touch /usr/written; exit 7"
            done = guest("--nics", "1", "--results", results, "--env", "NAME=a b", "--", "sh", "-c", command, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertEqual(done.stdout.split(), ["word", "rxe0"])
            self.assertEqual((pathlib.Path(results) / "file").read_text(), "a b\n")
        self.assertFalse(pathlib.Path("/usr/written").exists())
        self.assertEqual(machines(), [])

    def test_time_limit(self):
        start = time.monotonic()
        done = guest("--nics", "0", "--timeout", "3", "--", "sleep", "100", env=ENVIRONMENT)
        self.assertEqual(done.returncode, 124, done.stderr)
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(machines(), [])

    def test_killed(self):
        with subprocess.Popen([sys.executable, GUEST, "--nics", "0", "--", "sleep", "100"], env=ENVIRONMENT) as script:
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
            done = guest("--", "true", env={"PATH": "/nowhere", "MSCCLPP_REQUIRE_GUEST": required})
            self.assertEqual(done.returncode, status)
            self.assertIn("qemu-system-x86", done.stderr)


if __name__ == "__main__":
    # Prepares the guest, so that no test's time goes into that; and says if there can be none.
    ready = guest("--nics", "0", "--", "true", env=ENVIRONMENT)
    if ready.returncode != 0:
        sys.exit(ready.stderr if ready.returncode != 77 else 77)
    unittest.main()
