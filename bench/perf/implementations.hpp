// What is measured: this library with the algorithms asked for, and NCCL.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffers.hpp"
#include "comparison.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "nccl.hpp"
#include "options.hpp"

namespace mscclpp::perf {

/// An implementation of the collective that can be timed.
struct Implementation {
  std::string name;       ///< "mscclpp", an algorithm of it that was asked for, "NCCL", "NCCL symmetric"
  std::string algorithm;  ///< CollectiveCall::algorithm
  std::function<void(const CollectiveCall&)> run;
  std::function<bool(const CollectiveCall&)> supports;
  /// The algorithm that such a call uses, for the report.
  std::function<std::string(const CollectiveCall&)> algorithmOf;
  /// Throws if an earlier call failed.
  std::function<void()> check;
  bool roundsEachAddition;
  bool canRecord;
  bool isRegistered = false;      ///< its buffers are registered on all ranks
  std::optional<Goal> goal = {};  ///< of a plan: compared with the first implementation
  std::shared_ptr<void> inputs;
  std::shared_ptr<void> outputs;

  BufferPairs buffers() const {
    return {static_cast<std::byte*>(inputs.get()), static_cast<std::byte*>(outputs.get())};
  }
};

/// nccl may be null. The buffers have inputBytes and outputBytes bytes. Called by all ranks. Throws
/// Error(InvalidUsage) if there is no such algorithm.
std::vector<Implementation> implementations(const Options& options, int ranks, Collectives& collectives, Nccl* nccl,
                                            Backend& backend, std::size_t inputBytes, std::size_t outputBytes);

}  // namespace mscclpp::perf
