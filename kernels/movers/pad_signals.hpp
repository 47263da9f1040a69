// Signals between ranks through signal pads, as those of PyTorch's symmetric memory: words that the sender sets and the
// receiver clears, so that nothing but zeros has to be kept between calls.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

/// The words of one channel. Each rank has a pad of 32-bit words, zero-filled, in memory that all ranks have mapped:
/// for each channel one word for each rank. The layout and the values are those that PyTorch's kernels use on the same
/// pads, so that either side of a signal may be one of them. Channels do not affect each other.
struct PadChannel {
  Team<> team;
  Window<> pads;
  int channel;

  /// The channels for which a pad of so many bytes has words.
  static constexpr MSCCLPP_HOST_DEVICE std::size_t channelsOf(std::size_t padBytes, int ranks) {
    return padBytes / sizeof(std::uint32_t) / static_cast<std::size_t>(ranks);
  }

  /// Signals a rank, as soon as it has consumed this rank's last signal of the channel. Called by one thread. Release,
  /// system scope: what the thread wrote, or a group sync ordered before, is visible after the peer's await(). Returns
  /// false if the wait failed.
  template <arch::Order order = arch::Order::Release, WaitPolicy Wait>
  MSCCLPP_INLINE bool put(int to, Wait& wait) const {
    return replace<order>(word(to, team.rank()), 0, 1, to, wait);
  }
  /// Waits for the signal of a rank and consumes it. Called by one thread. Acquire, system scope. Returns false if the
  /// wait failed.
  template <arch::Order order = arch::Order::Acquire, WaitPolicy Wait>
  MSCCLPP_INLINE bool await(int from, Wait& wait) const {
    return replace<order>(word(team.rank(), from), 1, 0, from, wait);
  }

 private:
  MSCCLPP_INLINE std::uint32_t* word(int of, int from) const {
    return reinterpret_cast<std::uint32_t*>(pads.at(of)) + channel * team.size() + from;
  }
  template <arch::Order order, class Wait>
  MSCCLPP_INLINE bool replace(std::uint32_t* address, std::uint32_t expected, std::uint32_t desired, int peer,
                              Wait& wait) const {
    return wait.until(WaitSite{WaitOperation::Semaphore, team.rank(), peer, 0, expected}, [&](std::uint64_t& seen) {
      seen = arch::compareExchange<order, arch::Scope::System>(address, expected, desired);
      return seen == expected;
    });
  }
};

/// Signals some ranks, then waits for signals of some: a signal, a wait, or, with all peers in both sets, a barrier. In
/// the form of a collective, for collectiveKernel: as a kernel it runs after what is before it in the stream.
struct ExchangePadSignals {
  struct Args {
    PadChannel channel;
    std::uint64_t to;    ///< bit r: signal rank r
    std::uint64_t from;  ///< bit r: wait for rank r
    BoundedWait wait;
  };
  struct None {};
  static_assert(maxTeamSize <= 64);

  static constexpr int maxBlockThreads = 64;

  /// Called by all threads of a grid of one block. A wait that fails leaves a record.
  template <class GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const None& = {}, const None& = {}) {
    const auto block = grid.block();
    BoundedWait wait = args.wait;
    for (int r = block.rank(); r < args.channel.team.size(); r += block.size()) {
      if ((args.to >> r & 1) != 0) args.channel.put(r, wait);
    }
    for (int r = block.rank(); r < args.channel.team.size(); r += block.size()) {
      if ((args.from >> r & 1) != 0) args.channel.await(r, wait);
    }
  }
};

}  // namespace mscclpp::kernels
