// Execution plans as algorithms, for collections and selectors.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/executor.hpp"

namespace mscclpp {

/// An algorithm that an executor performs. Its collective, message range and number of ranks are the plan's.
class DslAlgorithm : public Algorithm {
 public:
  /// id: its name. Throws Error(InvalidUsage) for an empty one.
  DslAlgorithm(std::string id, ExecutionPlan plan, std::unordered_map<std::string, std::uint64_t> tags = {},
               Constraint constraint = {});

  const std::string& name() const override { return name_; }
  const std::string& collective() const override { return collective_; }
  const std::pair<std::size_t, std::size_t>& messageRange() const override { return messageRange_; }
  const std::unordered_map<std::string, std::uint64_t>& tags() const override { return tags_; }
  const CollectiveBufferMode& bufferMode() const override { return bufferMode_; }
  AlgorithmType type() const override { return AlgorithmType::DSL; }
  Constraint constraint() const override { return constraint_; }
  void setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) override;
  const ExecutionPlan& plan() const noexcept { return plan_; }

  /// executor: one of the communicator, which all ranks use. op: NOP is a sum. Packets are LL16. Blocks and
  /// threads are the plan's. Refuses what does not agree with constraint(), messageRange() and bufferMode().
  CommResult execute(std::shared_ptr<Communicator> communicator, const void* input, void* output, std::size_t inputSize,
                     std::size_t outputSize, DataType dtype, ReduceOp op, CUstream_st* stream,
                     std::shared_ptr<Executor> executor, int nBlocks = 0, int nThreads = 0,
                     bool symmetricMemory = false, const std::unordered_map<std::string, std::uintptr_t>& extras = {},
                     DataType accumDtype = DataType::AUTO) override;
  /// Nothing: the executor has what calls keep.
  void reset() override {}

 private:
  std::string name_;
  std::string collective_;
  ExecutionPlan plan_;
  std::pair<std::size_t, std::size_t> messageRange_;
  CollectiveBufferMode bufferMode_;
  std::unordered_map<std::string, std::uint64_t> tags_;
  Constraint constraint_;
};

}  // namespace mscclpp
