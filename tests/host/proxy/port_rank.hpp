// One rank of the port channel tests: its device, its memory, and how device code is launched on it.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"

#if defined(__CUDACC__)
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#else
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#endif

namespace mscclpp::test {

#if defined(__CUDACC__)

inline constexpr int portWarpWidth = 32;

inline Device portDevice() {
  return {DeviceType::GPU, 0};
}
inline Transport portTransport() {
  return Transport::CudaIpc;
}
inline void usePortDevice() {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
}

/// Zero-filled words that peers can map.
class PortBuffer {
 public:
  explicit PortBuffer(std::size_t words) : buffer_(words) {}
  std::uint64_t* data() const { return buffer_.data(); }
  std::vector<std::uint64_t> read() const {
    std::vector<std::uint64_t> words(buffer_.nelems());
    gpuMemcpy(words.data(), buffer_.data(), words.size());
    return words;
  }
  void writeBytes(const void* from, std::size_t bytes) const {
    gpuMemcpy(reinterpret_cast<char*>(buffer_.data()), static_cast<const char*>(from), bytes);
  }
  void write(const std::vector<std::uint64_t>& words) const { writeBytes(words.data(), words.size() * 8); }

 private:
  GpuBuffer<std::uint64_t> buffer_;
};

template <class Body>
__global__ void runPortKernel(const __grid_constant__ Body body) {
  body(0, gpu::Grid());
}

/// Runs device code as this rank: blocks of one warp. Returns when it has ended.
template <class Body>
void runPortBody(int blocks, const Body& body) {
  CudaStreamWithFlags stream(cudaStreamNonBlocking);
  runPortKernel<<<blocks, portWarpWidth, 0, stream>>>(body);
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
}

#else

inline constexpr int portWarpWidth = 2;

inline Device portDevice() {
  return DeviceType::CPU;
}
/// A test program may choose another transport before its cases run.
inline Transport& portTransport() {
  static Transport transport = Transport::SharedMemory;
  return transport;
}
inline void usePortDevice() {}

class PortBuffer {
 public:
  explicit PortBuffer(std::size_t words) : buffer_(words * 8), words_(words) {}
  std::uint64_t* data() const { return static_cast<std::uint64_t*>(buffer_.data()); }
  std::vector<std::uint64_t> read() const { return {data(), data() + words_}; }
  void writeBytes(const void* from, std::size_t bytes) const { std::memcpy(buffer_.data(), from, bytes); }
  void write(const std::vector<std::uint64_t>& words) const { writeBytes(words.data(), words.size() * 8); }

 private:
  HostBuffer buffer_;
  std::size_t words_;
};

template <class Body>
void runPortBody(int blocks, const Body& body) {
  emulation::launch<portWarpWidth>({1, blocks, portWarpWidth}, body);
}

#endif

inline ProxyServiceOptions portOptions() {
  return {.thread = {.device = portDevice()}, .fifoSize = 64};
}

/// A rank's end towards one peer: a source buffer, a target buffer that the peer puts into, and a service.
template <class Trigger>
struct PortEnd {
  PortEnd(Communicator& communicator, int peer, std::size_t words, ProxyServiceOptions options = portOptions(),
          Transport transport = portTransport())
      : source(words),
        target(words),
        inbox(communicator.registerMemory(target.data(), words * 8, transport)),
        connection(communicator.connect({transport, portDevice()}, peer).get()),
        service(options),
        semaphore(service.buildAndAddSemaphore(communicator, connection)) {
    const auto local = communicator.registerMemory(source.data(), words * 8, transport);
    communicator.sendMemory(inbox, peer);
    const auto outbox = communicator.recvMemory(peer).get();
    dst = service.addMemory(outbox);
    src = service.addMemory(local);
  }
  BasicPortChannel<Trigger> channel() const { return service.portChannel(semaphore, dst, src); }

  PortBuffer source;
  PortBuffer target;
  RegisteredMemory inbox;  // kept: the peer may map it at any time
  Connection connection;
  BasicProxyService<Trigger> service;
  SemaphoreId semaphore;
  MemoryId dst = 0;
  MemoryId src = 0;
};

}  // namespace mscclpp::test
