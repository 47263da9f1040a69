#include "kernels/nccl/sibling_resources.hpp"

#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <utility>

#include "host/base/service_thread.hpp"
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
  try {
    if (kept_.size() < 2 || deviceType() != DeviceType::GPU) return;
    std::promise<void> released;
    const auto end = released.get_future();
    // The thread, or if it cannot be started this one, releases what its body holds. Its device is that of this thread,
    // since a call of CUDA would make a context on the first one.
    mscclpp::detail::startServiceThread("mscclpp-free", [kept = std::move(kept_), released = std::move(released),
                                                         device = currentDevice()]() mutable {
      try {
        const DeviceScope scope(device);
        kept.clear();
      } catch (const std::exception&) {  // the driver is unloading
      }
      released.set_value();
    }).detach();
    static_cast<void>(end.wait_for(longestRelease));
  } catch (const std::exception&) {  // no device, or no thread: this one releases them
  }
}

void SiblingResources::keep(std::shared_ptr<void> resource) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(resource));
}

}  // namespace mscclpp::nccl
