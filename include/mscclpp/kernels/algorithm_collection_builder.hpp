// Builds collections of algorithms: the library's own, and those of users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/algorithm_collection.hpp"

namespace mscclpp::collective {

/// Builds collections with the selectors and algorithm builders that it was given. One object serves a process; any
/// thread may call any function.
class AlgorithmCollectionBuilder {
 public:
  /// The builder of this process.
  static std::shared_ptr<AlgorithmCollectionBuilder> getInstance();
  /// Makes getInstance() return a new builder. Collections that were built are not concerned.
  static void reset();

  /// Throws Error(InvalidUsage) for null.
  void addAlgorithmBuilder(std::shared_ptr<AlgorithmBuilder> builder);
  /// The primary selector of the collections that are built from now on.
  void setAlgorithmSelector(AlgoSelectFunc selector);
  /// The selector that is asked when the primary one returns null.
  void setFallbackAlgorithmSelector(AlgoSelectFunc selector);

  /// A collection of the algorithms that the added builders make, with the selectors. Throws what a builder throws, and
  /// Error(InvalidUsage) if one returns null.
  AlgorithmCollection build();

  /// A collection of the library's algorithms (docs/algorithms.md has their names), with the selectors; without a
  /// fallback selector, "mscclpp_<collective>" is selected, which chooses by size. Their contexts are shared within the
  /// collection and its copies: a `Collectives` for each communicator and device, made by the first execute(). reset()
  /// of any of them releases all contexts.
  ///
  /// deviceType: of the buffers of all calls; on GPUs, each call uses the current device. Throws Error(InvalidUsage)
  /// for GPUs in a build without CUDA.
  AlgorithmCollection buildDefaultAlgorithms(DeviceType deviceType = DeviceType::GPU);
  /// The same, for GPUs. The arguments are not used: the library's algorithms allocate what they need.
  AlgorithmCollection buildDefaultAlgorithms(std::uintptr_t scratchBuffer, std::size_t scratchBufferSize,
                                             std::uintptr_t flagBuffer, std::size_t flagBufferSize, int rank);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<AlgorithmBuilder>> builders_;
  AlgoSelectFunc selector_;
  AlgoSelectFunc fallbackSelector_;
};

}  // namespace mscclpp::collective
