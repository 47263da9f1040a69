"""The bytes of device handles, in native code that was compiled for CPU ranks."""

import ctypes
import os
import pathlib
import shutil
import subprocess

import mscclpp
import numpy as np
import pytest
from rank_threads import run_threads
from test_channels import SHARED_MEMORY, connected, part, proxy_service, words_of

ROOT = pathlib.Path(__file__).parents[2]

SOURCE = """
#include <cstring>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/memory_channel_device.hpp"
#include "mscclpp/port_channel_device.hpp"
#include "mscclpp/switch_channel_device.hpp"

using namespace mscclpp;

template <class Handle>
Handle handleOf(const void* bytes) {
  Handle handle;
  std::memcpy(&handle, bytes, sizeof(handle));
  return handle;
}

extern "C" bool exchangeByPort(const void* bytes, std::uint64_t size) {
  const auto channel = handleOf<PortChannelDeviceHandle>(bytes);
  return channel.putWithSignal(0, 0, size) && channel.wait() && channel.flush();
}

extern "C" bool exchangeByMemory(const void* bytes, std::uint64_t size, std::uint32_t flag) {
  const auto channel = handleOf<MemoryChannelDeviceHandle>(bytes);
  channel.putPackets(cpu::SerialGroup(), 0, 0, size, flag);
  return channel.unpackPackets(cpu::SerialGroup(), 0, 0, size, flag);
}

extern "C" bool addUp(const void* bytes, float* sums, int vectors) {
  const auto channel = handleOf<SwitchChannelDeviceHandle>(bytes);
  channel.signal();
  if (!channel.wait()) return false;
  for (int i = 0; i < vectors; ++i) {
    const auto sum = channel.reduce<Vector<float, 4>>(i);
    std::memcpy(sums + 4 * i, &sum, sizeof(sum));
  }
  return true;
}

extern "C" std::uint64_t pushTriggers(const void* bytes, int count) {
  const auto fifo = handleOf<FifoDeviceHandle>(bytes);
  std::uint64_t last = 0;
  for (int i = 0; i < count; ++i) last = fifo.push(ProxyTrigger(i, 2 * i));
  return last;
}
"""


def toolkit_headers():
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for toolkit in filter(None, toolkits):
        headers = pathlib.Path(toolkit) / "include"
        if (headers / "cuda_fp16.h").is_file():
            return [headers / "cccl", headers]
    return None


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    compiler, headers = shutil.which("g++"), toolkit_headers()
    if compiler is None or headers is None:
        pytest.skip("needs g++ and the headers of the CUDA toolkit")
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.cpp").write_text(SOURCE)
    folders = [f"-I{path}" for path in (ROOT / "include", ROOT / "compat" / "include")]
    system = [f"-isystem{path}" for path in headers]
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-DMSCCLPP_HAVE_CUDA=0", *folders, *system]
    subprocess.run([compiler, *options, "-o", folder / "native.so", folder / "native.cpp"], check=True)
    library = ctypes.CDLL(str(folder / "native.so"))
    for name in ("exchangeByPort", "exchangeByMemory", "addUp"):
        getattr(library, name).restype = ctypes.c_bool
    library.pushTriggers.restype = ctypes.c_uint64
    return library


def test_port_channel(native):
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections), proxy_service() as service:
            rank, peer = comm.my_rank, 1 - comm.my_rank
            inbox, outbox = mscclpp.HostBuffer(128), mscclpp.HostBuffer(128)
            words_of(outbox)[:] = part(rank, peer)
            scratch = comm.register_local_memory(inbox, connections)
            channel = comm.make_port_channels_with_scratch(service, outbox, scratch, connections)[peer]
            assert native.exchangeByPort(channel.device_handle().raw, ctypes.c_uint64(128))
            assert (words_of(inbox) == part(peer, rank)).all()
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


def test_packets_of_a_memory_channel(native):
    def body(bootstrap):
        with connected(bootstrap) as (comm, connections):
            rank, peer = comm.my_rank, 1 - comm.my_rank
            scratch, tensor = mscclpp.HostBuffer(256), mscclpp.HostBuffer(128)
            memory = comm.register_local_memory(scratch, connections)
            channel = comm.make_memory_channels_with_scratch(tensor, memory, connections)[peer]
            words_of(tensor)[:] = part(rank, peer)
            raw = channel.device_handle().raw
            assert native.exchangeByMemory(raw, ctypes.c_uint64(128), ctypes.c_uint32(1))
            assert (words_of(tensor) == part(peer, rank)).all()
            comm.barrier()
        return True

    assert run_threads(2, body) == [True] * 2


def test_switch_channel(native):
    def body(bootstrap):
        with connected(bootstrap, SHARED_MEMORY) as (comm, _):
            connection = mscclpp.connect_nvls_collective(
                comm.communicator, list(range(comm.nranks)), 4096, mscclpp.DeviceType.CPU
            )
            buffer = mscclpp.HostBuffer(256)
            values = np.asarray(buffer.to_dlpack("float32"))
            values[:] = np.arange(64) * (comm.my_rank + 1)
            channel = connection.bind_allocated_memory(buffer.data(), 256)
            sums = np.zeros(64, np.float32)
            assert native.addUp(channel.device_handle().raw, ctypes.c_void_p(sums.ctypes.data), 16)
            comm.barrier()
        return sums.tolist()

    assert run_threads(3, body) == [(np.arange(64) * 6.0).tolist()] * 3


def test_fifo(native):
    fifo = mscclpp.Fifo(8, mscclpp.DeviceType.CPU)
    assert native.pushTriggers(fifo.device_handle().raw, 5) == 4
    for i in range(5):
        trigger = fifo.poll()
        assert (trigger.fst, trigger.snd) == (i, 2 * i)
        fifo.pop()
    assert fifo.poll() is None
