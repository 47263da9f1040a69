// Collectives whose data is moved by the copy engines of the GPUs: the host enqueues the copies, and no multiprocessor
// moves data between GPUs.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "mscclpp/sync/window.hpp"

struct CUstream_st;

namespace mscclpp {

/// How a mover divides its copies. Sizes in bytes. The first two are the same on all ranks.
struct CopyEngineOptions {
  /// The longest copy of an all-gather and an all-to-all between more than two ranks, which synchronise after each; 0:
  /// no limit. Each piece costs a step with a barrier.
  std::size_t permutationPieceBytes = 0;
  /// The same for a broadcast, whose pieces pass from rank to rank; 0: the whole message. Long pieces let the later
  /// ranks wait, short ones cost barriers.
  std::size_t broadcastPieceBytes = std::size_t{64} << 20;
  /// Into how many parts a copy to another rank is split, which are copied at the same time; 1 to 8.
  int copiesPerTransfer = 1;
};

/// All-gather, all-to-all, broadcast, gather and scatter into outputs that all ranks have mapped: every byte is copied
/// once, from the input of one rank into the output of another. It pays for messages of 256 MB in all and more on GPUs
/// behind an NVSwitch (measured on 4 H200), whose copy engines are faster than stores by kernels while each step costs
/// tens of microseconds, and for shorter ones where the multiprocessors are busy otherwise.
///
/// The copies are in steps, in each of which every output is written by at most one rank; the ranks synchronise between
/// steps, and before the first and after the last one. So a call returns, or on GPUs the next operation of the stream
/// runs, when the outputs of all ranks are complete. On DeviceType::GPU a call enqueues copies and kernels of one block
/// on the stream; it neither waits nor allocates, and graphs can capture and replay it. On DeviceType::CPU the calling
/// thread copies.
///
/// One sequence of calls, which must not overlap in time: use one stream per object. All ranks make the same calls in
/// the same order, with the same sizes and root. The object must outlive its calls, on all ranks: synchronise before it
/// is destroyed.
///
/// If a wait fails on a rank, check() throws there, this rank's later barriers do not arrive, and so the waits of its
/// peers fail too. Copies that are in a stream by then are still performed: after a failure the outputs of all ranks
/// are meaningless, those of calls that a rank had not entered included.
class CopyEngineMover {
 public:
  /// Collective: called by all ranks of the communicator, which must be on one host; on GPUs this rank uses the current
  /// device, here and in calls. monitor: watches the waits; null: one of its own. Throws Error(InvalidUsage) on all
  /// ranks if the options differ, and what SymmetricMemory throws.
  CopyEngineMover(Communicator& communicator, DeviceType deviceType, const CopyEngineOptions& options = {},
                  std::shared_ptr<WaitMonitor> monitor = nullptr);
  ~CopyEngineMover();
  CopyEngineMover(const CopyEngineMover&) = delete;
  CopyEngineMover& operator=(const CopyEngineMover&) = delete;

  /// Whether move() performs a collective: those below.
  static bool supports(CollectiveType collective) noexcept;

  /// Performs one of the collectives below. outputs: the address of each rank's output as this rank has mapped it, from
  /// SymmetricMemory::window() or RegisteredBuffer::window(), and subWindow() of them; null where there is none. input:
  /// this rank's own memory, registered or not. bytes: of what one rank has for one other; 0 returns at once. root: of
  /// those that have one. Throws Error(InvalidUsage) for wrong arguments, CudaError, and after an earlier failure what
  /// check() throws.
  void move(CollectiveType collective, const void* input, const Window<>& outputs, std::size_t bytes, int root = 0,
            CUstream_st* stream = nullptr);

  /// Every output gets the `bytes` bytes of each rank, in rank order. In place, without a local copy: input ==
  /// outputs.at(rank, rank * bytes).
  void allGather(const void* input, const Window<>& outputs, std::size_t bytes, CUstream_st* stream = nullptr) {
    move(CollectiveType::AllGather, input, outputs, bytes, 0, stream);
  }
  /// Part r of the input, of `bytes` bytes, goes to rank r, into part `rank` of its output. Not in place.
  void allToAll(const void* input, const Window<>& outputs, std::size_t bytes, CUstream_st* stream = nullptr) {
    move(CollectiveType::AllToAll, input, outputs, bytes, 0, stream);
  }
  /// Every output gets the `bytes` bytes of the root's input; the other inputs are not used. In place: input ==
  /// outputs.at(root), on the root.
  void broadcast(const void* input, const Window<>& outputs, std::size_t bytes, int root,
                 CUstream_st* stream = nullptr) {
    move(CollectiveType::Broadcast, input, outputs, bytes, root, stream);
  }
  /// The root's output gets the `bytes` bytes of each rank, in rank order; the other outputs are not used. In place:
  /// input == outputs.at(root, root * bytes), on the root.
  void gather(const void* input, const Window<>& outputs, std::size_t bytes, int root, CUstream_st* stream = nullptr) {
    move(CollectiveType::Gather, input, outputs, bytes, root, stream);
  }
  /// The output of rank r gets part r, of `bytes` bytes, of the root's input; the other inputs are not used. In place:
  /// outputs.at(root) == input + root * bytes, on the root.
  void scatter(const void* input, const Window<>& outputs, std::size_t bytes, int root, CUstream_st* stream = nullptr) {
    move(CollectiveType::Scatter, input, outputs, bytes, root, stream);
  }

  /// Throws what WaitMonitor::check throws if a wait of an earlier call failed. On GPUs call it after synchronising the
  /// stream. The object can no longer be used then.
  void check() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mscclpp
