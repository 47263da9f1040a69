// The compiled collectives as algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "context_table.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/algorithm_collection.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::kernels {

/// Which `Collectives` of a communicator: those of a device, with the selected or with all algorithms.
struct CollectivesKey {
  int device;
  Collectives::Algorithms algorithms;

  friend bool operator==(const CollectivesKey&, const CollectivesKey&) = default;
};

}  // namespace mscclpp::kernels

template <>
struct std::hash<mscclpp::kernels::CollectivesKey> {
  std::size_t operator()(const mscclpp::kernels::CollectivesKey& key) const noexcept {
    return static_cast<std::size_t>(key.device) * 2 + static_cast<std::size_t>(key.algorithms);
  }
};

namespace mscclpp::kernels {

/// What the calls on a communicator and device use.
struct CollectivesContext {
  CollectivesContext(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
                     Collectives::Algorithms algorithms)
      : collectives(std::move(communicator), deviceType, algorithms) {}

  Collectives collectives;
  std::vector<RegisteredBuffers::Handle> registrations;  ///< of the allocations of outputs in symmetric memory
};

/// What the algorithms of a collection share.
struct SharedCollectives {
  explicit SharedCollectives(DeviceType type)
      : deviceType(type), backend(type == DeviceType::GPU ? gpuBackend() : cpuBackend()) {}

  const DeviceType deviceType;
  const Backend& backend;
  ContextTable<CollectivesKey, CollectivesContext> contexts;
};

/// How an algorithm runs a compiled collective.
struct CollectiveAlgorithmOptions {
  std::string name;
  CollectiveType collective;
  std::size_t maxMessageSize = SIZE_MAX;
  /// Names of compiled algorithms. If one of them is selected by size, it runs; else the first that supports the call;
  /// else the one that is selected by size.
  std::vector<std::string> preferred = {};
  std::string only = {};              ///< the compiled algorithm that runs all calls, if not empty
  bool needsSymmetricMemory = false;  ///< of `only`: it stores into the outputs of the peers
};

/// An algorithm that runs a compiled collective. Docs of the extras that it takes: docs/algorithms.md.
class CollectiveAlgorithm : public DescribedAlgorithm {
 public:
  CollectiveAlgorithm(std::shared_ptr<SharedCollectives> shared, CollectiveAlgorithmOptions options);

  AlgorithmType type() const override { return AlgorithmType::Native; }

  CommResult execute(std::shared_ptr<Communicator> communicator, const void* input, void* output, std::size_t inputSize,
                     std::size_t outputSize, DataType dtype, ReduceOp op, CUstream_st* stream,
                     std::shared_ptr<Executor> executor, int nBlocks, int nThreads, bool symmetricMemory,
                     const std::unordered_map<std::string, std::uintptr_t>& extras, DataType accumDtype) override;
  /// Releases the contexts of all algorithms that share them.
  void reset() override;

 private:
  std::shared_ptr<CollectivesContext> contextOf(const std::shared_ptr<Communicator>& communicator,
                                                CUstream_st* stream) const;
  /// Registers the allocation of an output in symmetric memory with the peers, unless it is registered. All ranks call
  /// it alike, and find it registered or not alike.
  void registerOutput(CollectivesContext& context, MemoryRange output, CUstream_st* stream) const;
  std::string choose(const Collectives& collectives, CollectiveCall call) const;

  const std::shared_ptr<SharedCollectives> shared_;
  const CollectiveAlgorithmOptions options_;
};

/// A collection of all compiled collectives, without selectors. Throws Error(InvalidUsage) for an unknown device type,
/// and for GPUs in a build without CUDA.
AlgorithmCollection collectiveAlgorithms(DeviceType deviceType);

/// Selects "mscclpp_<collective>" of such a collection.
std::shared_ptr<mscclpp::Algorithm> selectBySize(const AlgorithmMap& algorithms, const CollectiveRequest& request);

}  // namespace mscclpp::kernels
