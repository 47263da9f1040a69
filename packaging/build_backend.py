"""meson-python, with one wheel for all Python versions from 3.12 on, and one for each before.

nanobind has the limited API from 3.12 on, and free-threaded interpreters have none before 3.15. pyproject.toml cannot
tell these apart.
"""

import sys
import sysconfig

import mesonpy
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel"]  # fmt: skip

get_requires_for_build_editable = get_requires_for_build_wheel


def _settings(given):
    has_limited_api = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    settings = dict(given or {})
    if not has_limited_api:
        setup = settings.get("setup-args", [])
        setup = [setup] if isinstance(setup, str) else list(setup)
        settings["setup-args"] = [*setup, "-Dpython.allow_limited_api=false"]
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_editable(wheel_directory, _settings(config_settings), metadata_directory)
