// Port channels over TCP: kernels put and signal to another rank's memory, through proxy, sockets and staging memory.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "tests/host/proxy/port_ping_pong.hpp"
#include "tests/host/proxy/port_rank.hpp"

namespace mscclpp::test {

/// Puts in two chunks; the source is overwritten after the flush.
struct TwoChunks {
  static constexpr bool overwritesSource = true;

  template <class Channel>
  MSCCLPP_HOST_DEVICE static bool prepare(Channel& /*channel*/) {
    return true;
  }
  template <class Channel>
  MSCCLPP_HOST_DEVICE static bool send(Channel& channel, int /*round*/, std::uint64_t bytes) {
    return channel.put(0, bytes / 2) && channel.putWithSignal(bytes / 2, bytes / 2) && channel.flush();
  }
};

inline void runPortsOverTcp(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  constexpr int words = 100'000;  // several chunks of the staging memory
  constexpr int rounds = 20;
  Communicator communicator(bootstrap);
  PortEnd<ProxyTrigger> end(communicator, peer, words, portOptions(), Transport::Ethernet);
  const PortBuffer wrong(1);
  const auto channel = end.channel();
  end.service.startProxy(true);
  bootstrap->barrier();
  runPortBody(1, PingPongPortBody<ProxyTrigger, TwoChunks>{deviceHandle(channel), end.source.data(), end.target.data(),
                                                           words, rounds, rank, wrong.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(wrong.read()[0] == 0);
  end.service.stopProxy();
  bootstrap->barrier();
}

}  // namespace mscclpp::test
