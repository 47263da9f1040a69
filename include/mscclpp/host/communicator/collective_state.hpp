// The state of a collective on the host: scratch on all ranks, epochs, and the monitor of its waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp {

class Communicator;

namespace detail {

/// What the state of a collective is made for; all ranks have to ask for the same.
struct CollectiveStateRequest {
  DeviceType where;
  std::uint32_t type;  ///< number of the collective's type
  std::size_t maxCount;
  PipelineShape shape;
  std::size_t windowBytes;
  int initialByte;
  std::uint64_t firstEpoch;
  int ranks;        ///< > 0: that the collective is configured for
  bool isAccepted;  ///< the collective accepts a call with maxCount elements
};

/// The part of CollectiveState that does not depend on the collective.
class CollectiveMemory {
 public:
  /// Collective, as CollectiveState's constructor. monitor: null for one of its own.
  CollectiveMemory(Communicator& communicator, const CollectiveStateRequest& request,
                   std::shared_ptr<WaitMonitor> monitor);

  const SymmetricMemory& scratch() const noexcept { return *scratch_; }
  /// The memory that was allocated on this rank.
  std::size_t bytes() const noexcept;
  std::uint64_t* epochs() const noexcept { return static_cast<std::uint64_t*>(epochs_.get()); }
  WaitMonitor& monitor() const noexcept { return *monitor_; }
  /// With the timeout of the monitor.
  BoundedWait wait() const;
  [[noreturn]] static void throwOverCapacity(std::size_t count, std::size_t maxCount);
  /// The number of ranks of a communicator.
  static int sizeOf(Communicator& communicator);

 private:
  std::shared_ptr<SymmetricMemory> scratch_;
  std::shared_ptr<void> epochs_;
  std::shared_ptr<WaitMonitor> monitor_;
};

template <int Ranks, class Scratch>
constexpr int ranksOf(const CollectiveArgs<Ranks, Scratch>*) {
  return Ranks;
}

}  // namespace detail

/// Owns what the calls of a collective C share: its scratch, which all ranks map, filled with C::Scratch::initialByte;
/// its epochs; and a WaitMonitor. One stream, or thread on the CPU, at a time makes calls with it; collectives that
/// overlap in time need a state each.
///
///   const CollectiveState<Collective> state(communicator, DeviceType::GPU, maxCount);
///   kernel<<<blocks, threads>>>(state.args(count), ...);  // calls Collective::run(grid, args, source, sink)
///   ...                                                   // after the kernel has ended:
///   state.check();
template <class C>
class CollectiveState {
  static_assert(
      LaunchableCollective<C>,
      "C must be a Collective: a type with Args, Scratch, maxBlockThreads, accepts(args, shape) and run(grid, "
      "args, source, sink), such as AllReduce<float, Sum, AllReduceConfig{}>; see LaunchableCollective in "
      "collective/collective.hpp");

 public:
  using Args = typename C::Args;
  using Scratch = typename C::Scratch;

  /// Collective: every rank of the communicator calls it, with the same C and arguments; their ranks are the team. No
  /// rank returns before the memory of all is ready. where: the memory is on the current GPU of each rank, or on the
  /// CPU. maxCount: elements of the longest message; pipelines take longer ones too. shape: of pipelines. monitor:
  /// watches the waits; null: one of its own. If ranks ask for different states, or the set-up fails on any of them,
  /// every rank throws an error that names the rank and the difference or cause: Error(InvalidUsage) for wrong
  /// arguments.
  CollectiveState(Communicator& communicator, DeviceType where, std::size_t maxCount, const PipelineShape& shape = {},
                  std::shared_ptr<WaitMonitor> monitor = nullptr)
      : CollectiveState(communicator, where,
                        scratchFor(maxCount, detail::CollectiveMemory::sizeOf(communicator), shape), maxCount, shape,
                        std::move(monitor)) {
    static_assert(Collective<C>,
                  "the scratch of C depends on more than a count: make it by C::scratchFor() and pass it to "
                  "CollectiveState(communicator, where, scratch, maxCount)");
  }
  /// The same with a scratch for calls of up to maxCount elements, the same on all ranks: for collectives whose scratch
  /// depends on more than that, such as GemmReduce.
  CollectiveState(Communicator& communicator, DeviceType where, const Scratch& scratch, std::size_t maxCount,
                  std::shared_ptr<WaitMonitor> monitor = nullptr)
      : CollectiveState(communicator, where, scratch, maxCount, PipelineShape{}, std::move(monitor)) {}

  /// The arguments of a call with `count` elements, for C::run on all ranks. Throws Error(InvalidUsage) if the scratch
  /// is too small for them. The state must outlive the call, on all ranks: synchronise before it is destroyed.
  Args args(std::size_t count) const {
    Args args = args_;
    args.count = count;
    if (!C::accepts(args, shape_)) detail::CollectiveMemory::throwOverCapacity(count, maxCount_);
    return args;
  }

  /// To be called after a call has ended: throws what WaitMonitor::check throws if one of its waits failed, or if it
  /// was a wrong call that was checked. The state is unfit for use afterwards.
  void check() const { memory_.monitor().check(); }

  WaitMonitor& monitor() const noexcept { return memory_.monitor(); }
  /// The layout of the scratch.
  const Scratch& scratch() const noexcept { return args_.scratch; }
  /// The memory that it has allocated on this rank, in bytes.
  std::size_t memoryBytes() const noexcept { return memory_.bytes(); }
  /// Elements, as constructed with.
  std::size_t maxCount() const noexcept { return maxCount_; }

 private:
  static constexpr int ranks = detail::ranksOf(static_cast<const Args*>(nullptr));

  CollectiveState(Communicator& communicator, DeviceType where, const Scratch& scratch, std::size_t maxCount,
                  const PipelineShape& shape, std::shared_ptr<WaitMonitor> monitor)
      : maxCount_(maxCount),
        shape_{shape.blocks, C::maxBlockThreads},
        args_{makeArgs(detail::CollectiveMemory::sizeOf(communicator), maxCount, scratch)},
        memory_(communicator, request(where, maxCount, shape), std::move(monitor)) {
    args_.team = decltype(args_.team)(memory_.scratch().rank(), memory_.scratch().nRanks());
    args_.window = memory_.scratch().template window<ranks>();
    args_.epochs = {memory_.epochs()};
    args_.wait = memory_.wait();
  }

  static Scratch scratchFor(std::size_t maxCount, int size, const PipelineShape& shape) {
    if constexpr (requires { C::scratchFor(maxCount, size, shape); }) {
      return C::scratchFor(maxCount, size, shape);
    } else if constexpr (Collective<C>) {
      return C::scratchFor(maxCount, size);
    } else {
      return {};
    }
  }
  static Args makeArgs(int size, std::size_t maxCount, const Scratch& scratch) {
    Args args{};
    if constexpr (requires { C::emptyArgs(); }) args = C::emptyArgs();
    args.team = decltype(args.team)(0, size);
    args.count = maxCount;
    args.scratch = scratch;
    return args;
  }
  detail::CollectiveStateRequest request(DeviceType where, std::size_t maxCount, const PipelineShape& shape) const {
    return {where,
            detail::typeNumber<C>(),
            maxCount,
            shape,
            args_.scratch.windowBytes(),
            static_cast<int>(Scratch::initialByte),
            static_cast<std::uint64_t>(Scratch::firstEpoch),
            ranks,
            C::accepts(args_, shape_)};
  }

  std::size_t maxCount_;
  LaunchShape shape_;
  Args args_;
  detail::CollectiveMemory memory_;
};

}  // namespace mscclpp
