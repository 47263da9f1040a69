// Operations on GPU tensors.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "executor.hpp"
#include "lazy_collectives.hpp"
#include "ranks.hpp"
#include "work.hpp"

namespace mscclpp::torch_c10d {

/// Operations are enqueued: asynchronous ones on a stream of this executor's own, so that they overlap with compute,
/// and the others on the caller's stream. PyTorch's streams and events are used through its
/// device-independent interface, so that one binary serves its builds with and without CUDA.
///
/// Sends and receives outside of a batch have, for each peer, collectives and a stream of their own, as with NCCL: only
/// the two ranks take part in the set-up, and those of two peers run beside the other calls of the group.
class GpuExecutor final : public Executor {
 public:
  GpuExecutor(Ranks ranks, c10::Device device, std::chrono::milliseconds timeout);
  ~GpuExecutor() override;

  /// Sets up the collectives. Called by all ranks.
  void connect();
  c10::intrusive_ptr<c10d::Work> submit(Operation operation, std::uint64_t sequence) override;
  at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options) override;
  RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes) override;
  void exchangeSignals(kernels::ExchangePadSignals::Args args, std::chrono::milliseconds timeout) override;
  bool finish(std::chrono::steady_clock::time_point deadline) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() noexcept override;
  void check() const override;

  c10::Device device() const noexcept { return device_; }

 private:
  /// Collectives and the stream of their asynchronous calls.
  struct Lane {
    std::shared_ptr<LazyCollectives> collectives;
    c10::Stream stream;
  };
  Lane makeLane(nccl::RankSet ranks, int maxBlocks) const;
  RegisteredBlock registerMemory(std::size_t bytes);
  /// For the messages with a peer; made by both ranks.
  Lane& laneTo(int peer);

  const Ranks ranks_;
  const c10::Device device_;
  const c10::impl::VirtualGuardImpl gpu_;
  std::chrono::milliseconds timeout_;
  std::mutex callMutex_;      // held while calls are enqueued
  mutable std::mutex mutex_;  // of what follows; held for short
  bool isAborted_ = false;
  Lane main_;
  std::map<int, Lane> lanes_;              // by peer
  std::optional<c10::Stream> lastCaller_;  // of the last call that was not asynchronous
  RegisteredTensors tensors_;
};

}  // namespace mscclpp::torch_c10d
