// How the host learns what a device's clock says: it asks, the device answers with its time, and the time in between bounds the error.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Host-visible memory, zero at first; each word has one writer.
struct ClockExchange {
  static constexpr std::uint64_t questions = 32;

  alignas(64) std::uint64_t asked;     ///< host: number of the question, from 1
  alignas(64) std::uint64_t answered;  ///< device: number of the answer, after `nanoseconds`
  std::uint64_t nanoseconds;           ///< device: its arch::nanoseconds()
};

/// Answers all questions, each for `patience` nanoseconds at most. One thread.
MSCCLPP_HOST_DEVICE inline void answerClock(ClockExchange& exchange, std::uint64_t patience = 5'000'000'000) {
  BoundedWait wait(nullptr, patience);
  for (std::uint64_t question = 1; question <= ClockExchange::questions; ++question) {
    const bool wasAsked = wait.until(WaitSite{WaitOperation::Unknown, -1, -1, 0, question}, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(&exchange.asked);
      return seen >= question;
    });
    if (!wasAsked) return;
    exchange.nanoseconds = arch::nanoseconds();
    arch::store<arch::Order::Release, arch::Scope::System>(&exchange.answered, question);
  }
}

/// The same as a collective of one thread, for the generic kernel.
struct ClockAnswer {
  struct Args {
    ClockExchange* exchange;
  };
  struct Nothing {};
  static constexpr int maxBlockThreads = 32;

  template <Grid GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, Nothing /*source*/, Nothing /*sink*/) {
    if (grid.block().rank() == 0) answerClock(*args.exchange);
  }
};

}  // namespace mscclpp
