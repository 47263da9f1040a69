// Signals between two ranks, before and after copies that the host has enqueued: the kernels, of one block, that send
// them and wait for them.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp::kernels {

/// Signals a peer once. Release, system scope: as a kernel it runs after the copies before it in the stream, which the
/// peer sees after its wait. It does nothing once a wait of this rank has failed: the copies before it may have read
/// what had not arrived, so the peer must not take them for complete. In the form of a collective, for
/// collectiveKernel.
struct SendSignal {
  struct Args {
    SemaphoreHandle semaphore;
    std::uint64_t* stopped;  ///< of this rank: non-zero once a wait has failed
  };
  struct None {};

  static constexpr int maxBlockThreads = 32;

  /// Called by all threads of a grid of one block.
  template <class GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const None& = {}, const None& = {}) {
    if (grid.block().rank() != 0) return;
    if (arch::load<arch::Order::Relaxed, arch::Scope::Device>(args.stopped) != 0) return;
    args.semaphore.signal();
  }
};

/// Waits for signals of peers, and consumes them: as many as each entry says. Acquire, system scope. Several may run at
/// once, and an entry may name a semaphore that another one names: each consumes signals of its own. In the form of a
/// collective, for collectiveKernel.
struct AwaitSignals {
  struct Entry {
    SemaphoreHandle semaphore;
    std::uint64_t signals;
  };
  static constexpr int mostEntries = 32;
  struct Args {
    Entry entries[mostEntries];
    int count;               ///< of the entries
    std::uint64_t* stopped;  ///< as of SendSignal
  };
  struct None {};

  static constexpr int maxBlockThreads = 32;

  /// Called by all threads of a grid of one block. A wait that fails leaves a record, and sets `stopped`.
  template <class GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const None& = {}, const None& = {}) {
    const auto block = grid.block();
    for (int i = block.rank(); i < args.count; i += block.size()) {
      const Entry& entry = args.entries[i];
      // The counter of consumed signals advances here, so that a captured graph replays.
      const std::uint64_t before =
          arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(entry.semaphore.consumed(), entry.signals);
      if (!entry.semaphore.waitAtLeast(before + entry.signals)) {
        arch::store<arch::Order::Relaxed, arch::Scope::Device>(args.stopped, std::uint64_t{1});
      }
    }
  }
};

}  // namespace mscclpp::kernels
