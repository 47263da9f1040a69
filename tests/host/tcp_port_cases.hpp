// Port channels over TCP: kernels put and signal to another rank's memory, by way of proxy, sockets and staging.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device_handle.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "port_rank.hpp"

namespace mscclpp::test {

/// In turn each rank writes new words, puts them in two pieces, signals, and overwrites them once a flush has returned; the other
/// one looks at all of them.
struct TcpPortBody {
  PortChannelHandle channel;
  std::uint64_t* source;
  const std::uint64_t* target;
  int words;
  int rounds;
  int rank;
  std::uint64_t* wrong;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto own = channel;
    const auto block = grid.block();
    const std::uint64_t half = static_cast<std::uint64_t>(words) / 2 * 8;
    std::uint64_t errors = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t value = static_cast<std::uint64_t>(round) * 1000003;
      if (round % 2 == rank) {
        for (int i = block.rank(); i < words; i += block.size()) source[i] = value + static_cast<std::uint64_t>(i);
        block.sync();
        if (block.rank() == 0) {
          const bool good = own.put(0, half) && own.putWithSignal(half, half) && own.flush();
          errors += good ? 0 : 1;
        }
        block.sync();
        for (int i = block.rank(); i < words; i += block.size()) source[i] = ~std::uint64_t{0};
      } else {
        if (block.rank() == 0) errors += own.wait() ? 0 : 1;
        block.sync();
        for (int i = block.rank(); i < words; i += block.size())
          errors += target[i] == value + static_cast<std::uint64_t>(i) ? 0 : 1;
        block.sync();
      }
    }
    if (errors != 0) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(wrong, errors);
  }
};

inline void playPortsOverTcp(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  constexpr int words = 100'000;  // several pieces of the staging memory
  constexpr int rounds = 20;
  Communicator communicator(bootstrap);
  PortEnd<ProxyTrigger> end(communicator, peer, words, portOptions(), Transport::Ethernet);
  const PortBuffer wrong(1);
  const auto channel = end.channel();
  end.service.startProxy(true);
  bootstrap->barrier();
  runPortBody(
      1, TcpPortBody{deviceHandle(channel), end.source.data(), end.target.data(), words, rounds, rank, wrong.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(wrong.read()[0] == 0);
  end.service.stopProxy();
  bootstrap->barrier();
}

}  // namespace mscclpp::test
