"""Compiled modules on disk: found by what they depend on, and made once however many processes need them."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import time

from .errors import Timeout


class NativeCache:
    """A folder of compiled modules. Files can be deleted at any time; nothing is deleted automatically.

    `<key>.json` says for a compilation which headers it read, with their digests, and which file it made. The name of
    that file has a digest of its content, so that a process that has loaded it keeps what it has loaded.
    """

    def __init__(self, folder):
        """Makes the folder if it is missing. Raises OSError if it cannot be made, or others could replace the code."""
        self._folder = pathlib.Path(folder)
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        status = self._folder.stat()
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o002:
            raise PermissionError(f"other users can write to {self._folder}")

    def find(self, key):
        """The module of a compilation, if nothing has changed since; else None."""
        try:
            entry = json.loads(self._entry(key).read_text())
            module = self._folder / entry["module"]
            files = {**entry["dependencies"], str(module): entry["digest"]}
            return module if all(_digest(path) == digest for path, digest in files.items()) else None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # missing, damaged or of another version
            return None

    def find_or_make(self, key, name, suffix, make, timeout):
        """The module of a compilation. If there is none, one process calls make(folder, path), and the others wait.

        `make` writes the module to `path`, in an empty folder, and returns the paths of the headers that it read.
        Raises what it raises, and Timeout.
        """
        return self.find(key) or self._make(key, name, suffix, make, timeout)

    def _make(self, key, name, suffix, make, timeout):
        with _locked(self._folder / f"{key}.lock", timeout):
            found = self.find(key)
            if found:
                return found
            for left in self._folder.glob(f"{key}.tmp*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            temporary = pathlib.Path(tempfile.mkdtemp(prefix=f"{key}.tmp", dir=self._folder))
            try:
                made = temporary / f"module{suffix}"
                dependencies = {str(path): _digest(path) for path in make(temporary, made)}
                digest = _digest(made)
                module = self._folder / f"{name}-{digest[:16]}{suffix}"
                made.replace(module)
                entry = temporary / "entry"
                entry.write_text(json.dumps({"dependencies": dependencies, "module": module.name, "digest": digest}))
                entry.replace(self._entry(key))
                return module
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def _entry(self, key):
        return self._folder / f"{key}.json"


def _digest(path):
    return hashlib.blake2b(pathlib.Path(path).read_bytes(), digest_size=16).hexdigest()


@contextlib.contextmanager
def _locked(path, timeout):
    """Holds a lock among processes, which the system frees when its holder ends in whatever way."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Timeout(f"another process has compiled for {timeout} s: {path} is locked") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
