// Ranks of one process that exchange rows through port channels: memory that their proxies access, and a proxy service
// for each rank.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/moe/port_transport.hpp"
#include "tester.hpp"
#include "tests/host/spawned_ranks.hpp"

#if !defined(__CUDACC__)
#include "mscclpp/host/memory/host_buffer.hpp"
#endif

namespace mscclpp::test {

#if defined(__CUDACC__)

inline constexpr Transport localTransport = Transport::CudaIpc;
using PortMemory = GpuBuffers;

inline Device deviceOfRank(int rank) {
  setDeviceOfRank(rank);
  return {DeviceType::GPU, rank % gpuCount()};
}

#else

inline constexpr Transport localTransport = Transport::SharedMemory;

/// Buffers that proxies can map, one per rank.
class PortMemory {
 public:
  PortMemory(int ranks, std::size_t bytes, int initialByte) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::memset(buffers_.emplace_back(bytes).data(), initialByte, bytes);
    }
  }
  Window<> window() const {
    Window<> result{};
    for (std::size_t r = 0; r < buffers_.size(); ++r) result.base[r] = static_cast<std::byte*>(buffers_[r].data());
    return result;
  }
  template <class T>
  void write(int rank, const std::vector<T>& from) {
    std::memcpy(window().at(rank), static_cast<const void*>(from.data()), from.size() * sizeof(T));
  }

 private:
  std::vector<HostBuffer> buffers_;
};

inline Device deviceOfRank(int /*rank*/) {
  return DeviceType::CPU;
}

#endif

/// How the proxies of a test run.
struct PortOptions {
  Transport transport = localTransport;
  bool areRunning = true;
};

/// Links of a MoeTester over RowTransport, a moe::BasicPortTransport. Ranks of one host have mapped each other's
/// windows; FIFOs have few slots, so that pushes wait.
template <class RowTransport, PortOptions options = PortOptions{}>
class PortLinks {
 public:
  PortLinks(const Backend<>& /*backend*/, const MoeParameters& p, std::size_t dispatchBytes, std::size_t combineBytes,
            int initialByte)
      : exchanges_{{p.dimensions.ranks, dispatchBytes, initialByte}, {p.dimensions.ranks, combineBytes, initialByte}},
        ends_(static_cast<std::size_t>(p.dimensions.ranks)) {
    runAsThreads(p.dimensions.ranks, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
      auto& end = ends_[static_cast<std::size_t>(bootstrap->getRank())];
      end = std::make_unique<End>(bootstrap);
      connect(*end, bootstrap->getRank(), p.ranksPerHost);
      bootstrap->barrier();
    });
    for (const auto& end : ends_) REQUIRE(end);
  }
  ~PortLinks() {
    for (const auto& end : ends_) {
      try {
        end->service.stopProxy();
      } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
      }
    }
  }
  PortLinks(const PortLinks&) = delete;
  PortLinks& operator=(const PortLinks&) = delete;

  void giveTo(MoeParameters& p) const {
    give(exchanges_[0], p.dispatchScratch, p.dispatchPorts);
    give(exchanges_[1], p.combineScratch, p.combinePorts);
  }

 private:
  using Channel = typename RowTransport::Channel;
  template <class Trigger>
  static BasicProxyService<Trigger> serviceOf(const BasicPortChannelHandle<Trigger>&);
  using Service = decltype(serviceOf(std::declval<const Channel&>()));
  using HostChannel = decltype(std::declval<const Service&>().portChannel(0, 0, 0));

  /// What dispatches use, or combines.
  struct Exchange {
    Exchange(int ranks, std::size_t windowBytes, int initialByte)
        : bytes(windowBytes),
          windows(ranks, bytes, initialByte),
          staging(ranks, bytes, poisonByte),
          channels(ranks, static_cast<std::size_t>(ranks) * sizeof(Channel), 0) {}

    std::size_t bytes;
    PortMemory windows, staging, channels;
  };
  struct End {
    explicit End(const std::shared_ptr<Bootstrap>& bootstrap)
        : device(deviceOfRank(bootstrap->getRank())),
          communicator(bootstrap),
          service(ProxyServiceOptions{.thread = {.device = device}, .fifos = 2, .fifoSize = 4}) {}

    Device device;
    Communicator communicator;
    Service service;
    std::vector<RegisteredMemory> windows;  // kept, so that the peers can map them
    std::vector<HostChannel> channels;
  };

  void connect(End& end, int rank, int ranksPerHost) {
    const int ranks = static_cast<int>(ends_.size());
    Communicator& communicator = end.communicator;
    std::vector<int> peers;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer / ranksPerHost != rank / ranksPerHost) peers.push_back(peer);
    }
    std::vector<std::shared_future<Connection>> connections;
    for (const int peer : peers) connections.push_back(communicator.connect({options.transport, end.device}, peer));
    std::vector<SemaphoreId> semaphores;
    for (const auto& connection : connections) {
      semaphores.push_back(end.service.buildAndAddSemaphore(communicator, connection.get()));
    }
    for (Exchange& exchange : exchanges_) {
      const auto registered = [&](const PortMemory& memory) {
        return communicator.registerMemory(memory.window().at(rank), exchange.bytes, options.transport);
      };
      const RegisteredMemory window = end.windows.emplace_back(registered(exchange.windows));
      const MemoryId src = end.service.addMemory(registered(exchange.staging));
      for (const int peer : peers) communicator.sendMemory(window, peer);
      std::vector<Channel> handles(static_cast<std::size_t>(ranks));
      for (std::size_t i = 0; i < peers.size(); ++i) {
        const MemoryId dst = end.service.addMemory(communicator.recvMemory(peers[i]).get());
        end.channels.push_back(end.service.portChannel(semaphores[i], dst, src));
        handles[static_cast<std::size_t>(peers[i])] = end.channels.back().deviceHandle();
      }
      exchange.channels.write(rank, handles);
    }
    if (options.areRunning) end.service.startProxy(true);
  }
  void give(const Exchange& exchange, Window<>& windows, MoePorts& ports) const {
    windows = exchange.windows.window();
    for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
      ports.channels[rank] = exchange.channels.window().at(static_cast<int>(rank));
      ports.staging[rank] = exchange.staging.window().at(static_cast<int>(rank));
    }
  }

  Exchange exchanges_[2];
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace mscclpp::test
