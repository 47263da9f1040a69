// Clock synchronisation between host and device: the host sends a request, the device responds with its time, and the
// round trip bounds the error.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The exchange, in host-visible memory; zero-initialised. Each word has one writer.
struct ClockSync {
  static constexpr std::uint64_t rounds = 32;

  alignas(64) std::uint64_t request;   ///< host: index of the round, from 1
  alignas(64) std::uint64_t response;  ///< device: index of the round, released after `nanoseconds`
  std::uint64_t nanoseconds;           ///< device: its arch::nanoseconds()
};

/// Responds to all rounds, waiting for each request `timeout` nanoseconds at most. Called by one thread.
MSCCLPP_HOST_DEVICE inline void respondToClockSync(ClockSync& exchange, std::uint64_t timeout = 5'000'000'000) {
  BoundedWait wait(nullptr, timeout);
  for (std::uint64_t round = 1; round <= ClockSync::rounds; ++round) {
    const bool requested = wait.until(WaitSite{WaitOperation::Unknown, -1, -1, 0, round}, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(&exchange.request);
      return seen >= round;
    });
    if (!requested) return;
    exchange.nanoseconds = arch::nanoseconds();
    arch::store<arch::Order::Release, arch::Scope::System>(&exchange.response, round);
  }
}

/// The same as a Collective, for the generic kernel: one thread responds.
struct ClockSyncResponder {
  struct Args {
    ClockSync* exchange;
  };
  struct Empty {};
  static constexpr int maxBlockThreads = 32;

  template <Grid GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, Empty /*source*/, Empty /*sink*/) {
    if (grid.block().rank() == 0) respondToClockSync(*args.exchange);
  }
};

}  // namespace mscclpp
