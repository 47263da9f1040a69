// An execution plan as an algorithm, which collections hold and select like any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/executor.hpp"

namespace mscclpp {

/// Executes a plan. Its message range is the plan's, its buffer mode InPlace or OutOfPlace as the plan says, and its
/// constraint the plan's number of ranks unless another one is given. In a collection without a selector of users, one
/// whose range, mode and constraint suit the call is taken before the library's algorithms; of several the first by
/// name.
class DslAlgorithm : public DescribedAlgorithm {
 public:
  /// where: of the executors that execute() makes if none is passed. Throws Error(InvalidUsage) for an empty id.
  DslAlgorithm(std::string id, ExecutionPlan plan, std::unordered_map<std::string, std::uint64_t> tags = {},
               Constraint constraint = {}, DeviceType where = DeviceType::GPU);
  ~DslAlgorithm() override;
  DslAlgorithm(const DslAlgorithm&) = delete;
  DslAlgorithm& operator=(const DslAlgorithm&) = delete;

  AlgorithmType type() const override { return AlgorithmType::DSL; }

  /// Executes the plan for the communicator's rank. executor: of this communicator; null: one that the algorithm keeps.
  /// nBlocks and nThreads are the plan's. op: NOP is SUM. extras: "packetType" (a PacketType).
  CommResult execute(std::shared_ptr<Communicator> communicator, const void* input, void* output, std::size_t inputSize,
                     std::size_t outputSize, DataType dtype, ReduceOp op, CUstream_st* stream,
                     std::shared_ptr<Executor> executor, int nBlocks = 0, int nThreads = 0,
                     bool symmetricMemory = false, const std::unordered_map<std::string, std::uintptr_t>& extras = {},
                     DataType accumDtype = DataType::AUTO) override;
  /// Releases the executors that execute() has made.
  void reset() override;

 private:
  class Executors;

  ExecutionPlan plan_;
  DeviceType where_;
  std::unique_ptr<Executors> executors_;
};

}  // namespace mscclpp
