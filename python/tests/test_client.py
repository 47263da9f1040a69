"""The program that checks the interfaces on GPUs runs on CPU ranks, too."""

import mscclpp
import pytest

pytest.importorskip("torch")
pytest.importorskip("mscclpp.torch", reason="built without -Dtorch=enabled", exc_type=ImportError)

import client  # noqa: E402


def test_client_on_cpu_ranks():
    names = [function.__name__ for function in client.CASES]
    assert mscclpp.run(2, client.work, "cpu", timeout=300) == [names] * 2
