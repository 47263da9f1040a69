// Tensors in memory that all ranks have mapped: collectives store their results there without a copy through scratch.
#pragma once

#include <functional>
#include <memory>

#include "kernels/nccl/rank_set.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

struct RegisteredBlock {
  std::shared_ptr<void> memory;
  RegisteredBuffers::Handle registration;
};

/// A registration is a call of all ranks, and memory is asked for in every step of a training. So memory whose tensor
/// is gone is used again, on the stream that it was made for, and kept until the group ends. Each call is an agreement
/// of the ranks: a block is taken that is free on all of them, since its outputs must lie in the same registration, and
/// tensors end at different times on each rank.
class RegisteredTensors {
 public:
  /// registerMemory: makes a block of so many bytes; called by all ranks alike. ranks: for the agreement.
  RegisteredTensors(nccl::RankSet ranks, std::function<RegisteredBlock(std::size_t)> registerMemory);

  /// A tensor of one dimension. stream: 0 on a CPU. Called by all ranks, with the same size and type. Throws Error.
  at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options, std::int64_t stream);

 private:
  struct Table;

  const nccl::RankSet ranks_;
  const std::function<RegisteredBlock(std::size_t)> registerMemory_;
  const std::shared_ptr<Table> table_;  // tensors outlive this object
};

}  // namespace mscclpp::torch_c10d
