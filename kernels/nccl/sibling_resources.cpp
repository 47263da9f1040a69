#include "kernels/nccl/sibling_resources.hpp"

#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "kernels/nccl/device.hpp"

namespace mscclpp::nccl {

namespace {

struct Sets {
  std::mutex mutex;
  std::map<RankSet::Key, std::weak_ptr<SiblingResources>> sets;
};

/// Longer than a release takes that nothing holds up.
constexpr std::chrono::milliseconds longestRelease{500};

}  // namespace

std::shared_ptr<SiblingResources> SiblingResources::of(const RankSet::Key& key) {
  static auto* const all = new Sets;  // never destroyed: destructors of static objects may end communicators
  const std::lock_guard lock(all->mutex);
  std::erase_if(all->sets, [](const auto& entry) { return entry.second.expired(); });
  auto found = all->sets[key].lock();
  if (!found) all->sets[key] = found = std::make_shared<SiblingResources>();
  return found;
}

SiblingResources::~SiblingResources() {
  if (kept_.size() < 2 || deviceType() != DeviceType::GPU) return;
  const auto kept = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(kept_));
  try {
    const auto released = std::make_shared<std::promise<void>>();
    const auto end = released->get_future();
    // Its device is that of this thread, since a call of CUDA would make a context on the first one.
    std::thread([kept, released, device = currentDevice()] {
      try {
        const DeviceScope scope(device);
        kept->clear();
      } catch (const std::exception&) {  // the driver is unloading
      }
      released->set_value();
    }).detach();
    static_cast<void>(end.wait_for(longestRelease));
  } catch (const std::exception&) {  // no thread can be started: by this one
    kept->clear();
  }
}

void SiblingResources::keep(std::shared_ptr<void> resource) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(resource));
}

}  // namespace mscclpp::nccl
