// What a measurement exchanges with the other ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::perf {

/// Every function is called by all ranks.
class RankGroup {
 public:
  explicit RankGroup(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  int rank() const { return bootstrap_.getRank(); }
  int size() const { return bootstrap_.getNranks(); }
  void barrier() const { bootstrap_.barrier(); }

  /// The values of all ranks. T: trivially copyable.
  template <class T>
  std::vector<T> gather(T mine) const {
    return gather(std::vector<T>{mine});
  }
  /// Vectors of the same length on all ranks, one after the other.
  template <class T>
  std::vector<T> gather(const std::vector<T>& mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()) * mine.size());
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank());
    bootstrap_.allGather(all.data(), static_cast<int>(mine.size() * sizeof(T)));
    return all;
  }

 private:
  Bootstrap& bootstrap_;
};

}  // namespace mscclpp::perf
