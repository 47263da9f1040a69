// What device threads do while a FIFO is timed.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace mscclpp::bench {

/// Who pushes in each block.
enum class Form { Thread, Warp, EveryThread };

inline constexpr int maxFifos = 16;

/// Each pusher pushes `pushes` triggers (a warp: one a lane, each time) into the FIFO of its block.
template <class Trigger, Publish publish>
struct Pusher {
  BasicFifoHandle<Trigger> fifos[maxFifos];
  int fifoCount;
  Form form;
  int pushes;
  int dirtyWords;          ///< words that a thread writes before each push, for the fence to wait for
  bool sync;               ///< wait until the trigger is popped, each time
  std::uint64_t* scratch;  ///< of dirtyWords a thread
  std::uint64_t* elapsed;  ///< nanoseconds, by block 0

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    const auto block = grid.block();
    if (form == Form::Thread && block.rank() != 0) return;
    if (form == Form::Warp && grid.warpIndex() != 0) return;
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
      const std::uint64_t position =
          form == Form::Warp ? fifo.template push<publish>(grid.warp(), trigger) : fifo.template push<publish>(trigger);
      if (sync) fifo.sync(position);
    }
    if (grid.blockIndex() == 0 && block.rank() == 0) *elapsed = arch::nanoseconds() - start;
  }

  /// How many triggers that makes.
  std::uint64_t triggers(int blocks, int threads, int warpWidth) const {
    const int each = form == Form::Thread ? 1 : form == Form::Warp ? warpWidth : threads;
    return static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(each) *
           static_cast<std::uint64_t>(pushes + pushes / 10);
  }
};

}  // namespace mscclpp::bench
