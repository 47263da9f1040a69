// Operations on CPU tensors.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "executor.hpp"
#include "lazy_collectives.hpp"
#include "ranks.hpp"
#include "task_thread.hpp"
#include "work.hpp"

namespace mscclpp::torch_c10d {

/// A call of a CPU rank returns when its part is done, so threads perform them: one for the collectives, in order, one
/// for what is sent, and one for what is received from each rank. Messages are buffered by the receiving process, as
/// those of gloo: a send does not wait for its receive, in whichever order the ranks make them.
class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Ranks& ranks, std::chrono::milliseconds timeout);
  ~CpuExecutor() override;

  c10::intrusive_ptr<c10d::Work> submit(Operation operation, std::uint64_t sequence) override;
  at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options) override;
  RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes) override;
  void exchangeSignals(kernels::ExchangePadSignals::Args args, std::chrono::milliseconds timeout) override;
  bool finish(std::chrono::steady_clock::time_point deadline) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() noexcept override;
  void check() const override;

 private:
  void transfer(const Message& message);
  RegisteredBlock registerMemory(std::size_t bytes);

  const nccl::RankSet messages_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> isAborted_ = false;
  LazyCollectives collectives_;
  RegisteredTensors tensors_;
  std::mutex mutex_;  // of the table
  TaskThread performer_;
  TaskThread sender_;
  std::map<int, TaskThread> receivers_;  // by rank
};

}  // namespace mscclpp::torch_c10d
