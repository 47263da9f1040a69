"""Packed arguments of kernels, and kernels compiled at run time, which needs NVRTC and no GPU."""

import ctypes
import math
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import mscclpp
import numpy as np
import pytest
from mscclpp.utils import Kernel, KernelBuilder, pack
from rank_threads import single_rank


class Arguments(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_int),
        ("array", ctypes.c_void_p),
        ("flag", ctypes.c_int),
        ("factor", ctypes.c_float),
        ("small", ctypes.c_int8),
        ("count", ctypes.c_size_t),
        ("half", ctypes.c_uint16),
        ("total", ctypes.c_double),
        ("null", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
    ]


def test_pack_lays_arguments_out_as_a_struct():
    array, buffer = np.zeros(4, np.float32), mscclpp.HostBuffer(8)
    numbers = (ctypes.c_float(1.5), np.int8(-1), ctypes.c_size_t(1 << 40), np.float16(1.0), np.float64(math.pi))
    packed = pack(-5, array, True, *numbers, None, buffer)
    expected = Arguments(-5, array.ctypes.data, 1, 1.5, -1, 1 << 40, 0x3C00, math.pi, None, buffer.data())
    assert packed == bytes(expected)
    assert pack() == b"" and pack(1, 2) == struct.pack("ii", 1, 2)


def test_pack_takes_tensors_and_handles():
    torch = pytest.importorskip("torch")
    for tensor in (torch.zeros(3), torch.zeros(3, dtype=torch.bool), torch.zeros(4, 4)[:, 1]):
        assert pack(tensor) == struct.pack("P", tensor.data_ptr())
    with single_rank() as comm:
        buffer = mscclpp.HostBuffer(64)
        connections = comm.make_connection([0], mscclpp.Transport.SharedMemory)
        channel = comm.make_memory_channels(buffer, connections)[0]
        handle = channel.device_handle()
        memory = comm.register_local_memory(buffer, connections)
        expected = struct.pack("ii", 1, 0) + handle.raw + struct.pack("P", buffer.data())
        assert pack(1, channel, memory) == pack(1, handle, buffer) == expected
        # An array of handles in memory that kernels read.
        handles = np.frombuffer(handle.raw * 2, np.uint8)
        assert len(handle.raw) == 72 and handles.size == 144


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: pack(1 << 31), "does not fit an int: pass a ctypes.c_int64"),
        (lambda: pack(1.5), "the argument is a float.*ctypes.c_float"),
        (lambda: pack("text"), "the argument is a str"),
        (lambda: pack(np.zeros((4, 4))[:, 0]), "not contiguous"),
        (lambda: KernelBuilder(kernel_name="f"), "one of file= and code="),
        (lambda: KernelBuilder("none.cu", "f"), "there is no file none.cu"),
        (lambda: Kernel(SimpleNamespace(launch=None)).launch_kernel(b"", 1, 1, 0, "s"), "stream of torch or cupy"),
    ],
)
def test_wrong_calls(call, sentence):
    with pytest.raises(mscclpp.InvalidUsage, match=sentence):
        call()


def test_launch():
    launches = []
    kernel = Kernel(SimpleNamespace(launch=lambda *arguments: launches.append(arguments)))
    kernel.launch_kernel(b"packed", 2, 64)
    kernel.launch_kernel(b"packed", 2, 64, 1024, SimpleNamespace(ptr=7))
    kernel.launch_kernel(b"packed", 2, 64, stream=SimpleNamespace(cuda_stream=8))
    shapes = (b"packed", 2, 64)
    assert launches == [(*shapes, 0, 0), (*shapes, 1024, 7), (*shapes, 0, 8)]


COMPILE = """
import sys
import mscclpp, pytest
from mscclpp.utils import KernelBuilder

folder = sys.argv[1]
try:
    builder = KernelBuilder("exchange.cu", "exchange", folder, {"WORDS": 16, "NAME": "exchange"}, architecture="sm_90a")
except mscclpp.Error as error:
    assert error.code == mscclpp.ErrorCode.SystemError, error
    print("skip:", str(error).splitlines()[0])
    sys.exit()
assert builder.program.image().startswith(b"\\x7fELF") and builder.program.architecture() == "sm_90a"
assert builder.program.lowered_name("exchange") == "exchange"
template = KernelBuilder(code="template <class T> __global__ void fill(T* p, T v) { *p = v; }",
                         kernel_name="fill<float>", architecture="compute_90")
assert template.program.image().startswith(b"//") and "fillIf" in template.program.lowered_name("fill<float>")
assert template.program.lowered_name("fill<float>").encode() in template.program.image()
with pytest.raises(mscclpp.InvalidUsage, match=r"exchange.cu\\(8\\): error: identifier .WORDS. is undefined"):
    KernelBuilder("exchange.cu", "exchange", folder, {"NAME": "exchange"}, architecture="sm_90a")
with pytest.raises(mscclpp.InvalidUsage, match="sm_1"):
    KernelBuilder("exchange.cu", "exchange", folder, architecture="sm_1")
if not mscclpp.has_cuda:
    with pytest.raises(mscclpp.InvalidUsage, match="this build of mscclpp has no CUDA"):
        builder.get_compiled_kernel()
print("compiled")
"""

SOURCE = """#include <mscclpp/channel/memory.hpp>
#include <mscclpp/channel/port.hpp>

#include "bytes_per_word.hpp"
extern "C" __global__ void NAME(mscclpp::PortChannelHandle port, mscclpp::MemoryChannelHandle memory) {
  if (threadIdx.x != 0) return;
  memory.wait();
  port.putWithSignal(0, WORDS * bytesPerWord);
  port.wait();
}
"""


def test_compiled_kernels(tmp_path):
    (tmp_path / "exchange.cu").write_text(SOURCE)
    (tmp_path / "bytes_per_word.hpp").write_text("constexpr int bytesPerWord = 8;")
    (tmp_path / "program.py").write_text(COMPILE)
    environment = {**os.environ, "MSCCLPP_CACHE_DIR": str(tmp_path / "cache")}
    program = [sys.executable, tmp_path / "program.py", tmp_path]
    finished = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    if finished.stdout.startswith("skip: "):
        pytest.skip(finished.stdout)
    assert finished.stdout == "compiled\n" and list((tmp_path / "cache" / "jit").iterdir())
