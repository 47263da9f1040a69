// What communicators of one process keep for each other: ranks that are threads use each other's memory as it is, so
// that of a rank which is done must stay until all of them are.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/nccl/rank_set.hpp"

namespace mscclpp::nccl {

/// Shared by the ranks of a set that are in this process; what they kept is released with the last of them.
class SiblingResources {
 public:
  static std::shared_ptr<SiblingResources> of(const RankSet::Key& key);

  void keep(std::shared_ptr<void> resource);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace mscclpp::nccl
