#include "kernels/nccl/sibling_resources.hpp"

#include <map>
#include <utility>

namespace mscclpp::nccl {

namespace {

struct Sets {
  std::mutex mutex;
  std::map<RankSet::Key, std::weak_ptr<SiblingResources>> sets;
};

}  // namespace

std::shared_ptr<SiblingResources> SiblingResources::of(const RankSet::Key& key) {
  static auto* const all = new Sets;  // never destroyed: destructors of static objects may end communicators
  const std::lock_guard lock(all->mutex);
  std::erase_if(all->sets, [](const auto& entry) { return entry.second.expired(); });
  auto found = all->sets[key].lock();
  if (!found) all->sets[key] = found = std::make_shared<SiblingResources>();
  return found;
}

void SiblingResources::keep(std::shared_ptr<void> resource) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(resource));
}

}  // namespace mscclpp::nccl
