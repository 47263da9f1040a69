"""NVRTC of PyPI's packages, for machines without a CUDA toolkit."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
from collections.abc import Iterable

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")  # those that the library asks the loader for


@functools.cache
def load_nvrtc() -> None:
    """Loads the NVRTC that pip has installed, as torch's wheels need it; the library then finds it by its name.

    Does nothing if MSCCLPP_NVRTC_LIB_PATH names one, or the loader finds one by itself. Where there is none at all, the
    library's error says what to install.
    """
    if os.environ.get("MSCCLPP_NVRTC_LIB_PATH") or _load_first(_NAMES):
        return
    _load_first(_installed_libraries())


def _load_first(libraries: Iterable[str]) -> bool:
    for library in libraries:
        try:
            ctypes.CDLL(library)
            return True
        except OSError:
            continue
    return False


def _installed_libraries() -> list[str]:
    # CUDA 13 has one folder, nvidia/cu13/lib; CUDA 12 one for each package, nvidia/cuda_nvrtc/lib.
    packages = importlib.util.find_spec("nvidia")
    folders = packages.submodule_search_locations if packages is not None else None
    found = (path for name in _NAMES for folder in folders or () for path in pathlib.Path(folder).glob(f"*/lib/{name}"))
    return [str(path) for path in found]
