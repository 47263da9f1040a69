// 06: two ranks exchange arrays over a port channel. The device code, and the set-up of the channel; cpu.cpp and gpu.cu
// run them. Between GPUs copy engines move the data, so that the kernel's threads have nothing to copy. With the
// argument "tcp" or "verbs" a network moves them: only the transport differs.
#pragma once

#include <cstdint>
#include <string_view>

#include "example.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"

namespace example {

/// In each round every rank writes `count` new words to `sendBuffer`, puts them into the peer's recvBuffer, and adds up
/// what the peer has put into its own. Called by all threads of one group. Afterwards sums[i] is the sum of the peer's
/// words i.
template <mscclpp::ThreadGroup Group>
MSCCLPP_HOST_DEVICE void exchange(const Group& group, mscclpp::PortChannelHandle channel, std::uint32_t* sendBuffer,
                                  const std::uint32_t* recvBuffer, std::uint32_t* sums, int count, int rounds,
                                  int rank) {
  for (int round = 0; round < rounds; ++round) {
    for (int i = group.rank(); i < count; i += group.size())
      sendBuffer[i] = static_cast<std::uint32_t>(i + round + rank);
    group.sync();
    if (group.rank() == 0) {
      // One thread makes the request, after the words of all threads are written: hence the sync.
      channel.putWithSignal(0, static_cast<std::uint64_t>(count) * sizeof(std::uint32_t));
      channel.wait();  // for the peer's words
    }
    group.sync();
    for (int i = group.rank(); i < count; i += group.size()) sums[i] += recvBuffer[i];
    group.sync();
    if (group.rank() == 0) {
      // A put reads sendBuffer asynchronously. After the flush sendBuffer may be written again.
      channel.flush();
      // The peer may put into recvBuffer only after it has been read here: signal that, and wait for the peer's signal.
      channel.signal();
      channel.wait();
    }
    group.sync();
  }
}

/// The transport named by the program's argument; without one, the default between ranks of one host.
inline mscclpp::Transport transportFor(const mscclpp::Device& device, int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "tcp") return mscclpp::Transport::Ethernet;
  if (name == "verbs") return mscclpp::nearestIBTransport(device);
  require(name.empty(), "the argument may be tcp or verbs");
  return device.type == mscclpp::DeviceType::GPU ? mscclpp::Transport::CudaIpc : mscclpp::Transport::SharedMemory;
}

/// Both ranks' ends of such a channel: from `sendBuffer` to the peer's `recvBuffer`. The service's thread executes
/// the requests.
struct PortChannelSetup {
  mscclpp::RegisteredMemory recvBuffer;  // kept, so that the peer can map it
  mscclpp::PortChannel channel;
};
inline PortChannelSetup connectPortChannel(int peer, mscclpp::Communicator& communicator,
                                           mscclpp::ProxyService& service, void* sendBuffer, void* recvBuffer,
                                           std::size_t bytes, const mscclpp::EndpointConfig& endpoint) {
  const mscclpp::Connection connection = communicator.connect(endpoint, peer).get();
  const mscclpp::Transport transport = endpoint.transport;
  const mscclpp::RegisteredMemory local = communicator.registerMemory(sendBuffer, bytes, transport);
  const mscclpp::RegisteredMemory target = communicator.registerMemory(recvBuffer, bytes, transport);
  communicator.sendMemory(target, peer);
  const mscclpp::RegisteredMemory remote = communicator.recvMemory(peer).get();
  // The service identifies memories and semaphores by ids, which kernels pass.
  const mscclpp::SemaphoreId semaphore = service.buildAndAddSemaphore(communicator, connection);
  const mscclpp::MemoryId dst = service.addMemory(remote);
  const mscclpp::MemoryId src = service.addMemory(local);
  return {target, service.portChannel(semaphore, dst, src)};
}

/// The expected value of sums[i].
inline std::uint32_t expectedSum(int i, int rounds, int peer) {
  std::uint32_t sum = 0;
  for (int round = 0; round < rounds; ++round) sum += static_cast<std::uint32_t>(i + round + peer);
  return sum;
}

}  // namespace example
