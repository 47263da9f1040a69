// A collection of algorithms by collective and name, and the selection of one for a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/kernels/algorithm.hpp"

struct CUstream_st;

namespace mscclpp {

/// The call that an algorithm is selected for.
struct CollectiveRequest {
  int worldSize = 0;
  int nRanksPerNode = 0;
  int rank = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t messageSize = 0;  ///< bytes, as `Algorithm` says
  CUstream_st* stream = nullptr;
  std::string collective = {};
  DataType dtype = DataType::AUTO;
  std::unordered_map<std::string, std::vector<std::uint64_t>> hints = {};  ///< for the selectors of users
  ReduceOp op = ReduceOp::SUM;  ///< of collectives that reduce, NOP of others; selectors must not ignore it

  /// InPlace or OutOfPlace. In place, output is input; or the rank's part of a gathered output is the input, or the
  /// rank's part of a scattered input is the output.
  CollectiveBufferMode bufferMode() const;
};

/// The algorithms of a collection, by collective and name.
using AlgorithmMap = std::unordered_map<std::string, std::unordered_map<std::string, std::shared_ptr<Algorithm>>>;

/// Returns the algorithm for a request, or null for none. All ranks must select the same one for a call.
using AlgoSelectFunc = std::function<std::shared_ptr<Algorithm>(const AlgorithmMap&, const CollectiveRequest&)>;

/// Algorithms by collective and name. Copies share the algorithms. Any thread may call any function, also while
/// algorithms of the collection are executed; a selection sees the algorithms that were registered when it began.
class AlgorithmCollection {
 public:
  AlgorithmCollection();
  AlgorithmCollection(const AlgorithmCollection& other);
  AlgorithmCollection& operator=(const AlgorithmCollection& other);

  /// What the primary selector returns or, if that is null, the fallback selector; null if neither returns one. Throws
  /// what they throw.
  std::shared_ptr<Algorithm> selectAlgorithm(const CollectiveRequest& request) const;

  /// Adds an algorithm, in place of one with the same collective and name. Throws Error(InvalidUsage) if it is null.
  void registerAlgorithm(std::string collective, std::string algorithmName, std::shared_ptr<Algorithm> algorithm);
  /// The algorithms of a collective by name.
  std::unordered_map<std::string, std::shared_ptr<Algorithm>> getAlgorithmsByCollective(
      const std::string& collective) const;
  std::vector<std::shared_ptr<Algorithm>> getAllAlgorithms() const;
  /// Adds all algorithms of another collection, in place of those with the same names. The selectors stay.
  void extend(const AlgorithmCollection& other);
  /// Sets the selectors; either may be empty. They may run in several threads at once.
  void setSelectors(AlgoSelectFunc primary, AlgoSelectFunc fallback);

 private:
  struct Content;

  std::shared_ptr<const Content> content() const;
  template <class Change>
  void change(Change&& change);

  mutable std::mutex mutex_;
  std::shared_ptr<const Content> content_;  // replaced, never changed
};

}  // namespace mscclpp
