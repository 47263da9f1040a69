"""Commands of the tests of installations."""

import shlex
import subprocess


def run(*command, **options):
    """Runs a command; its output is shown only if it fails."""
    command = [str(word) for word in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if result.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}\n{result.stdout}\nexit code {result.returncode}")
    return result.stdout
