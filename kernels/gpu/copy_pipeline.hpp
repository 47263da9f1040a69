// Copies to other ranks beside what a stream does, which goes on with what has arrived.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "kernels/gpu/side_stream.hpp"
#include "kernels/gpu/stream_events.hpp"
#include "kernels/movers/team_engine.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

/// Copies by the copy engines into memory of other ranks, in steps beside a stream of the caller, which waits for one
/// step after the other. No multiprocessor moves data: there is a barrier of one block after each step, for which the
/// copies of the next one do not wait. All ranks make the same calls, with as many steps. It serves one call at a time
/// and must outlive them on all ranks; graphs can capture a call.
///
/// A CudaError in the middle of a call leaves the object unfit for use, since the ranks no longer agree on its steps:
/// what comes next throws, and the other ranks' waits fail.
class CopyPipeline {
 public:
  /// Collective. what: it is for, in messages. monitor: of its waits; null: one of its own. Throws what TeamEngine
  /// throws.
  CopyPipeline(Communicator& communicator, const char* what, std::shared_ptr<WaitMonitor> monitor = nullptr);

  /// Begins a call, whose copies start when what is in the ranks' streams now has run, on all of them. Throws what
  /// check() throws, before it enqueues anything, if a wait is known to have failed.
  void begin(cudaStream_t stream);
  /// Enqueues a copy of the next step.
  void copy(void* to, const void* from, std::size_t bytes);
  /// Ends a step.
  void endStep();
  /// What is enqueued in the caller's stream from now on runs when all ranks' copies of this step have been performed;
  /// it has ended. A call waits for its last step: otherwise no capture can end, and what is copied must not change.
  void wait(std::size_t step);
  /// Ends a call that cannot go on: as after wait() of the last step, of the copies that this rank has enqueued.
  void abandon() noexcept;
  /// After the stream was synchronised.
  void check() const { team_.check(); }

 private:
  void requireUsable() const;
  template <class Enqueue>
  void attempt(const Enqueue& enqueue);

  TeamEngine team_;
  SideStream copies_, barriers_;
  std::vector<StreamEvents::Event> ends_;  ///< of as many steps as a call has had
  std::size_t steps_ = 0;                  ///< of this call that have ended
  cudaStream_t stream_ = nullptr;
  bool hasFailed_ = false;
};

}  // namespace mscclpp::kernels
