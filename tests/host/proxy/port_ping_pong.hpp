// Device code of two ranks that send words to each other by turns, over a port channel.
#pragma once

#include <cstdint>

#include "mscclpp/host/channel/device_handle.hpp"
#include "port_rank.hpp"

namespace mscclpp::test {

/// One rank writes new words and sends them, with a signal; the other waits and checks all of them. `Sender` says how:
/// - `prepare(channel)`, before the source is written;
/// - `send(channel, round, bytes)`; both are called by one thread, and return whether they succeeded;
/// - `overwritesSource`: after `send` the source is no longer read.
template <class Trigger, class Sender>
struct PingPongPortBody {
  BasicPortChannelHandle<Trigger> channel;
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
    const std::uint64_t bytes = static_cast<std::uint64_t>(words) * 8;
    std::uint64_t errors = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t value = static_cast<std::uint64_t>(round) * 1000003;
      if (round % 2 == rank) {
        if (block.rank() == 0) errors += Sender::prepare(own) ? 0 : 1;
        block.sync();
        for (int i = block.rank(); i < words; i += block.size()) source[i] = value + static_cast<std::uint64_t>(i);
        block.sync();
        if (block.rank() == 0) errors += Sender::send(own, round, bytes) ? 0 : 1;
        if constexpr (Sender::overwritesSource) {
          block.sync();
          for (int i = block.rank(); i < words; i += block.size()) source[i] = ~std::uint64_t{0};
        }
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

}  // namespace mscclpp::test
