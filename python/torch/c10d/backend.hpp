// The backend "mscclpp" of torch.distributed.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cpu_executor.hpp"
#include "gpu_executor.hpp"
#include "operation.hpp"
#include "ranks.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// One rank of a process group, for CPU tensors, for those of one GPU, or both.
///
/// It is built on Collectives, and of what implements NCCL's API only on the rank sets, whose splits share connections,
/// and on the division of long exchanges. A communicator of that API is for one kind of device, chosen by the
/// environment; its calls block CPU ranks, it takes NCCL's fewer types, and names NCCL's functions in errors. Here a
/// process group serves CPU and GPU tensors at once, a call of a CPU rank runs while its caller goes on, and sends of
/// CPU ranks do not wait for their receives.
///
/// Functions throw mscclpp's errors, and those of PyTorch for its store.
class Backend final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeLimit = kBackendDefaultTimeout);
  };
  using Works = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// Called by all ranks: connects them through the store.
  Backend(c10d::Store& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~Backend() override;

  const std::string getBackendName() const override;  // NOLINT(readability-const-return-type): PyTorch's
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  const c10::intrusive_ptr<Options>& ownOptions() const noexcept { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void eagerConnectSingleDevice(at::Device device) override;
  /// Called by all ranks of a group; null for those that are not among `ranks`. Only these take part.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10d::ErrorType getError() override;
  /// Ends all calls in progress, here and on the other ranks, which then fail. Any thread may call it.
  void abort() override;
  /// Completes the calls in progress, and leaves the group. It waits for no rank that has failed, and aborts calls that
  /// take longer than ten seconds.
  void shutdown() override;
  /// The same for all backends of the process: called before the interpreter ends, while threads can take its lock.
  static void shutdownAll();
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  /// The executor of a device, made by the first call for it. Throws Error(InvalidUsage) for a second GPU, and
  /// Error(Aborted) after shutdown().
  std::shared_ptr<Executor> executorOf(const c10::Device& device);

  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  /// Called by all ranks, with the same size and type.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  void startCoalescing() override;
  Works endCoalescing() override;

  Works broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Works allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Works allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Works reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Works allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Works _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Works allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                            const c10d::AllgatherOptions& options) override;
  Works allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) override;
  Works gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Works scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Works reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                       const c10d::ReduceScatterOptions& options) override;
  Works _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Works reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::ReduceScatterOptions& options) override;
  Works alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& outputSplits,
                      std::vector<std::int64_t>& inputSplits, const c10d::AllToAllOptions& options) override;
  Works alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Works send(Tensors& tensors, int peer, int tag) override;
  Works recv(Tensors& tensors, int peer, int tag) override;
  Works recvAnysource(Tensors& tensors, int tag) override;
  Works barrier(const c10d::BarrierOptions& options) override;

 private:
  Backend(Ranks ranks, c10::intrusive_ptr<Options> options);

  std::shared_ptr<GpuExecutor> gpuExecutor(const c10::Device& device);
  std::vector<std::shared_ptr<Executor>> executors() const;
  /// Passes an operation on, or keeps it for endCoalescing().
  Works submit(Operation operation);
  void addReduceScatter(Operation& operation, const at::Tensor& output, const at::Tensor& input,
                        const c10d::ReduceOp& op) const;
  void addAllGather(Operation& operation, const at::Tensor& output, const at::Tensor& input) const;
  void addAllReduce(Operation& operation, const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  void addExchange(Operation& operation, const Tensors& outputs, const Tensors& inputs) const;
  void addMessage(Operation& operation, const at::Tensor& tensor, int peer, int tag, bool isSend) const;
  int requireRoot(const Operation& operation, std::int64_t root) const;

  const c10::intrusive_ptr<Options> options_;
  mutable std::mutex mutex_;    // of what follows
  std::optional<Ranks> ranks_;  // none after shutdown()
  std::shared_ptr<CpuExecutor> cpu_;
  std::shared_ptr<GpuExecutor> gpu_;
  std::optional<Operation> batch_;
  std::vector<c10::intrusive_ptr<CoalescedWork>> batchWorks_;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::atomic<bool> isAborted_ = false;
};

}  // namespace mscclpp::torch_c10d
