// What performs the copies and barriers of a schedule, and the order in which it is asked to.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/movers/barrier.hpp"
#include "kernels/movers/schedule.hpp"
#include "mscclpp/sync/window.hpp"

struct CUstream_st;

namespace mscclpp::kernels {

/// The copies and barriers of this rank, in order: performed in the calling thread, or enqueued on a stream. For one
/// sequence of calls, which do not overlap in time.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  /// What comes next is on this stream, until the next use(); there is no local copy that has not been joined.
  virtual void use(CUstream_st* stream) = 0;
  /// Of all ranks: what each has copied before is visible to all afterwards. Returns false if it is known to have
  /// failed: the caller then stops.
  virtual bool barrier() = 0;
  /// A copy to another rank, complete before the next barrier.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// A copy within this rank, complete after joinLocal(): it may run at the same time as what comes in between.
  virtual void copyLocal(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void joinLocal() = 0;
};

/// Performs the part of `rank` in a schedule. outputs: those of all ranks. The opening barrier shows that all ranks
/// have entered the call, so that their outputs may be written; the closing one that all copies into this rank's output
/// have been performed.
inline void perform(const CopySchedule& schedule, int rank, const std::byte* input, const Window<>& outputs,
                    Engine& engine) {
  const Transfer own = schedule.localCopy(rank);
  if (own.bytes > 0) {
    std::byte* to = outputs.at(rank, own.destination);
    const std::byte* from = input + own.source;
    if (to != from) engine.copyLocal(to, from, own.bytes);
  }
  const std::size_t steps = schedule.steps();
  if (steps > 0 && !engine.barrier()) return;
  for (std::size_t step = 0; step < steps; ++step) {
    if (step > 0 && schedule.hasBarriersBetweenSteps() && !engine.barrier()) return;
    const Transfer transfer = schedule.transfer(rank, step);
    if (transfer.bytes == 0) continue;
    const std::byte* from = transfer.fromOutput ? outputs.at(rank) : input;
    engine.copy(outputs.at(transfer.to, transfer.destination), from + transfer.source, transfer.bytes);
  }
  engine.joinLocal();
  if (steps > 0) engine.barrier();
}

/// Performs the copies in the calling thread.
std::unique_ptr<Engine> makeCpuEngine(const MoverBarrier::Args& barrier);
/// Enqueues them on streams of the current device; a copy to another rank as copiesPerTransfer copies at a time. Throws
/// CudaError; Error(InvalidUsage) in a build without CUDA.
std::unique_ptr<Engine> makeGpuEngine(const MoverBarrier::Args& barrier, int copiesPerTransfer);

}  // namespace mscclpp::kernels
