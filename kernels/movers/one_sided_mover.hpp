// One-sided messages: copies into memory of a peer, and signals that tell it of them. The host enqueues both; the peer
// makes no call but to wait for the signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/movers/signals.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

struct CUstream_st;

namespace mscclpp {

class Communicator;

namespace kernels {

/// Signals of a peer that a call waits for and consumes.
struct AwaitedSignals {
  int peer;
  int counter;  ///< less than the mover's number of counters
  std::uint64_t signals;
};

/// Each rank has `counters` counters of signals for each rank, itself included. Signals accumulate, and each is
/// consumed once. On GPUs the calls are enqueued on a stream, also in a capture, and run in its order; calls on
/// different streams are not ordered. On CPU ranks they are performed by the calling thread. Arguments are not checked.
/// Calls after a wait has failed throw what check() throws.
class OneSidedMover {
 public:
  /// Collective, with the same arguments on all ranks, on the current device of each. Throws what SymmetricMemory's
  /// constructor throws.
  OneSidedMover(Communicator& communicator, DeviceType deviceType, int counters);

  /// Copies to an address of a peer that this rank has mapped. A later signal() in the stream tells that it is done.
  void put(void* to, const void* from, std::size_t bytes, CUstream_st* stream);
  void signal(int peer, int counter, CUstream_st* stream);
  /// What is next in the stream runs when all the signals have arrived, and sees what their senders copied before them.
  void wait(std::span<const AwaitedSignals> awaited, CUstream_st* stream);

  /// Throws what WaitMonitor::check throws, if a wait has failed.
  void check() const { monitor_.check(); }
  /// The memory of this rank for the counters, in bytes.
  std::size_t memoryBytes() const noexcept { return memory_.bytes(); }

 private:
  static std::size_t wordsOf(int ranks, int counters);
  void throwIfFailed() const;
  SemaphoreHandle semaphore(int peer, int counter) const;
  /// This rank's word that says that a wait has failed.
  std::uint64_t* stopped() const;

  bool onGpu_;
  std::size_t counters_;
  SymmetricMemory memory_;
  WaitMonitor monitor_;
};

}  // namespace kernels
}  // namespace mscclpp
