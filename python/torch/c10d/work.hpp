// What a call of the backend returns: on a CPU rank, on a GPU, and within a group of coalesced calls.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "operation.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// The part that all have. wait() throws the exception of the call, in its caller's thread.
class Work : public c10d::Work {
 public:
  Work(int rank, std::uint64_t sequence, const Operation& operation);

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 protected:
  /// "all_reduce, call 7 of the process group".
  std::string description() const;
  [[noreturn]] void throwTimeout(std::chrono::milliseconds timeout) const;
  void complete(std::exception_ptr exception);

  const std::uint64_t sequence_;
  const char* const name_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Completes when the last of its parts has, in whichever thread.
class CpuWork final : public Work {
 public:
  /// limit: how long wait() waits unless its caller says so.
  CpuWork(int rank, std::uint64_t sequence, const Operation& operation, std::chrono::milliseconds limit);

  void begin(int parts) { partsLeft_ = parts; }
  void endPart(std::exception_ptr exception = nullptr);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override {}

 private:
  const std::chrono::milliseconds limit_;
  std::atomic<int> partsLeft_ = 0;
  std::exception_ptr failure_;  // of the first part that failed; under mutex_
};

/// Completes when the GPU has passed its end. wait() makes the current stream wait for that, and not the host, unless
/// a timeout was given or it is a barrier.
class GpuWork final : public Work {
 public:
  /// check: throws if a call of the same collectives has failed on the device.
  GpuWork(int rank, std::uint64_t sequence, const Operation& operation, std::function<void()> check);
  ~GpuWork() override;

  /// Called once, after the call has been enqueued on `stream`, which the caller's stream does not follow if it is
  /// async. kept: what the GPU may still use.
  void begin(const c10::Stream& stream, std::vector<at::Tensor> kept);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;

 private:
  bool hasEnded() const;

  const c10::Device device_;
  const bool isAsync_;
  const bool isHostBarrier_;
  const std::function<void()> check_;
  std::optional<c10::Stream> stream_;
  c10::Event end_;
  std::vector<at::Tensor> kept_;  // under mutex_
};

/// A call within startCoalescing() and endCoalescing(): there is nothing to wait for before the latter, and then it is
/// one with the others.
class CoalescedWork final : public c10d::Work {
 public:
  using c10d::Work::Work;
  void join(c10::intrusive_ptr<c10d::Work> group);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  c10::intrusive_ptr<c10d::Work> group() const;
  c10::intrusive_ptr<c10d::Work> group_;  // under mutex_
};

}  // namespace mscclpp::torch_c10d
