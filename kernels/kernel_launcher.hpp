// Starts the kernels of a communicator's calls, in their order and with their scratch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "algorithms.hpp"
#include "backend.hpp"
#include "call_order.hpp"
#include "exchange_call.hpp"
#include "gpu_budget.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "mscclpp/sync/window.hpp"
#include "regions.hpp"

namespace mscclpp::kernels {

/// Enqueues calls on GPUs, and runs them on CPUs. Backend, regions and share outlive it. Algorithms are indices in
/// algorithmTable.
class KernelLauncher {
 public:
  /// maxBlocks: of a kernel. share: of the GPU's blocks; null on CPUs.
  KernelLauncher(int rank, int ranks, int maxBlocks, const Backend& backend, const Regions& regions,
                 std::shared_ptr<const WaitMonitor> monitor, GpuBudget::Share* share)
      : rank_(rank),
        ranks_(ranks),
        maxBlocks_(maxBlocks),
        backend_(backend),
        regions_(regions),
        monitor_(std::move(monitor)),
        share_(share) {}

  int maxBlocks() const { return maxBlocks_; }
  /// How kernels start.
  KernelStart start() const { return share_ ? share_->start() : KernelStart::InOrder; }
  /// Whether calls run beside those of other objects.
  bool isConcurrent() const { return share_ == nullptr || share_->isConcurrent(); }

  /// The id of an algorithm's calls in a trace.
  static TraceId traceIdOf(std::size_t algorithm);
  /// Null: calls are not recorded.
  void record(std::shared_ptr<Trace> trace) { trace_ = std::move(trace); }

  /// Enqueues a call of `bytes` bytes by launch(), which returns 0 or a cudaError_t: records it as one of an algorithm,
  /// and lets it run after the earlier calls of this object and of its chain. Throws CudaError, which names the call.
  template <class Launch>
  void enqueue(const char* name, std::size_t algorithm, std::size_t bytes, CUstream_st* stream,
               const Launch& launch) const {
    const auto track = trace_ ? trace_->trackOfThisThread("calls") : nullptr;
    if (track) track->begin(traceIdOf(algorithm), bytes);
    CallOrder::Turn turn = share_ != nullptr ? share_->begin(stream) : CallOrder::Turn();
    const int error = launch();
    turn.end();
    if (track) track->end(traceIdOf(algorithm));
    if (error != 0) throw CudaError(std::string(name) + ": the launch failed", error);
  }

  /// A valid call by the kernel of an algorithm. outputs: the outputs of all ranks, for an algorithm that writes them
  /// directly. joined: the calls that it performs, if they are several.
  void run(const CollectiveCall& call, std::size_t algorithm, const Window<>& outputs = {},
           std::span<const CollectiveCall> joined = {}) const;

  /// The messages of a list by one kernel, in which all pairs of ranks progress together: a message that is received
  /// may be needed by others before the ones that this call sends can be received. joined: as of ExchangeCall.
  void exchange(const MessageList& list, CUstream_st* stream, const MessageList* joined = nullptr) const;

 private:
  BoundedWait wait() const;
  LaunchShape shapeOf(const CollectiveCall& call, const Algorithm& algorithm, const Region& region,
                      std::size_t bytes) const;
  /// Every pair has as many blocks as the message that needs most.
  LaunchShape shapeOf(const MessageList& list) const;

  int rank_;
  int ranks_;
  int maxBlocks_;
  const Backend& backend_;
  const Regions& regions_;
  std::shared_ptr<const WaitMonitor> monitor_;
  GpuBudget::Share* share_;
  std::shared_ptr<Trace> trace_;
};

}  // namespace mscclpp::kernels
