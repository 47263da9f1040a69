// The kernel of the FIFO benchmark.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace mscclpp::bench {

/// Which threads of a block push.
enum class PushGranularity { Thread, Warp, EveryThread };

inline constexpr int maxFifos = 16;

/// Each pusher pushes `pushes` triggers (a warp: one per lane each time) into the FIFO of its block.
template <class Trigger, ReleaseScope releaseScope>
struct Pusher {
  BasicFifoHandle<Trigger> fifos[maxFifos];
  int fifoCount;
  PushGranularity granularity;
  int pushes;
  int dirtyWords;          ///< words that a thread writes before each push, which the fence orders
  bool sync;               ///< wait until each trigger is popped
  std::uint64_t* scratch;  ///< dirtyWords per thread
  std::uint64_t* elapsed;  ///< nanoseconds, by block 0

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    const auto block = grid.block();
    if (granularity == PushGranularity::Thread && block.rank() != 0) return;
    if (granularity == PushGranularity::Warp && grid.warpIndex() != 0) return;
    auto fifo = fifos[grid.blockIndex() % fifoCount];
    std::uint64_t* own = scratch + static_cast<std::size_t>(grid.blockIndex() * block.size() + block.rank()) *
                                       static_cast<std::size_t>(dirtyWords);
    std::uint64_t start = arch::nanoseconds();
    const int warmup = pushes / 10;
    for (int i = -warmup; i < pushes; ++i) {
      if (i == 0) start = arch::nanoseconds();
      for (int w = 0; w < dirtyWords; ++w)
        arch::store<arch::Order::Relaxed, arch::Scope::Device>(own + w, static_cast<std::uint64_t>(i));
      const Trigger trigger{};
      const std::uint64_t position = granularity == PushGranularity::Warp
                                         ? fifo.template push<releaseScope>(grid.warp(), trigger)
                                         : fifo.template push<releaseScope>(trigger);
      if (sync) fifo.sync(position);
    }
    if (grid.blockIndex() == 0 && block.rank() == 0) *elapsed = arch::nanoseconds() - start;
  }

  /// The total number of triggers.
  std::uint64_t triggers(int blocks, int threads, int warpWidth) const {
    const int each = granularity == PushGranularity::Thread ? 1
                     : granularity == PushGranularity::Warp ? warpWidth
                                                            : threads;
    return static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(each) *
           static_cast<std::uint64_t>(pushes + pushes / 10);
  }
};

}  // namespace mscclpp::bench
