// What communicators of one process keep for each other: ranks that are threads use each other's memory as it is, so
// that of a rank which is done must stay until all of them are.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/nccl/rank_set.hpp"

namespace mscclpp::nccl {

/// Shared by the ranks of a set that are in this process; what they kept is released with the last of them. To free
/// memory of a GPU waits for what runs there. That may be a call of another communicator by a rank that has left this
/// one before, which waits for the rank that the releasing thread is: so what ranks of several GPUs kept is released by
/// a thread of its own, for which the last one waits only for a time in which nothing but such a call can hold it up.
class SiblingResources {
 public:
  static std::shared_ptr<SiblingResources> of(const RankSet::Key& key);

  SiblingResources() = default;
  SiblingResources(const SiblingResources&) = delete;
  SiblingResources& operator=(const SiblingResources&) = delete;
  ~SiblingResources();

  void keep(std::shared_ptr<void> resource);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace mscclpp::nccl
