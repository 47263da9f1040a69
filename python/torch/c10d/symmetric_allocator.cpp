// Allocations of symmetric memory, and the groups whose ranks meet on them.
#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "interpreter_lock.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "python/src/gpu_support.hpp"
#include "symmetric_memory.hpp"

namespace mscclpp::torch_c10d {

namespace {

/// The backends that were made for groups of other libraries, which have none of this one.
class BackendsOfOthers {
 public:
  c10::intrusive_ptr<Backend> of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const Entry& entry) { return entry.group.expired(); });
    for (const Entry& entry : all_) {
      if (entry.group._unsafe_get_target() == group.get()) return entry.backend;
    }
    c10d::PrefixStore store("mscclpp_symmetric_memory", group->getStore());
    all_.push_back({c10::weak_intrusive_ptr<c10d::ProcessGroup>(group),
                    c10::make_intrusive<Backend>(store, group->getRank(), group->getSize(),
                                                 c10::make_intrusive<Backend::Options>(kBackendDefaultTimeout))});
    return all_.back().backend;
  }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
    c10::intrusive_ptr<Backend> backend;
  };
  std::mutex mutex_;
  std::vector<Entry> all_;
};

BackendsOfOthers& backendsOfOthers() {
  static auto* const backends = new BackendsOfOthers;  // never destroyed: as the groups
  return *backends;
}

/// The backend by which the ranks of a group meet: its own for such tensors, if that is one of this library.
c10::intrusive_ptr<Backend> backendOf(const std::string& groupName, c10::DeviceType type) {
  const auto group = c10d::resolve_process_group(groupName);
  const auto devices = group->getDeviceTypes();
  if (std::any_of(devices.begin(), devices.end(), [&](const c10::Device& each) { return each.type() == type; })) {
    auto own = c10::dynamic_intrusive_pointer_cast<Backend>(group->getBackend(type));
    if (own) return own;
  }
  return backendsOfOthers().of(group);
}

class SymmetricAllocator final : public c10d::symmetric_memory::SymmetricMemoryAllocator {
 public:
  explicit SymmetricAllocator(c10::DeviceType type) : type_(type) {}

  void* alloc(std::size_t size, int deviceIndex, const std::optional<std::string>& groupName) override {
    c10::Device device(type_);
    if (!device.is_cpu()) {
      const c10::impl::VirtualGuardImpl gpu(type_);
      device.set_index(deviceIndex >= 0 ? static_cast<c10::DeviceIndex>(deviceIndex) : gpu.getDevice().index());
    }
    const std::size_t bytes = SymmetricBlock::allocationBytes(size);
    auto block = std::make_shared<SymmetricBlock>(allocate(bytes, device), size, device);
    block->groupName = groupName;
    void* const address = block->memory.get();
    const std::lock_guard lock(mutex_);
    blocks_.emplace(reinterpret_cast<std::uintptr_t>(address), std::move(block));
    return address;
  }

  void free(void* address) override {
    std::shared_ptr<SymmetricBlock> ending;  // after the lock: it waits for the device
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == blocks_.end()) return;
    ending = std::move(found->second);
    blocks_.erase(found);
  }

  std::size_t get_alloc_size(void* address) override { return find(address)->bytes; }

  c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory> rendezvous(
      void* address, const std::optional<std::string>& groupName) override {
    const WithoutInterpreterLock unlocked;
    auto block = find(address);
    const auto& name = groupName ? groupName : block->groupName;
    if (!name) {
      throw Error("rendezvous: there is no group: pass one here, or where the memory is allocated",
                  ErrorCode::InvalidUsage);
    }
    const SymmetricMapping& mapping = block->mappingFor(backendOf(*name, type_));
    const auto offset = static_cast<std::size_t>(static_cast<char*>(address) - static_cast<char*>(block->memory.get()));
    return c10::make_intrusive<SymmetricMemory>(std::move(block), mapping, offset);
  }

  bool has_multicast_support(int /*deviceIndex*/) override { return false; }
  c10::DeviceType supported_device_type() override { return type_; }
  std::string name() override { return symmetricMemoryName; }

 private:
  static std::shared_ptr<void> allocate(std::size_t bytes, const c10::Device& device) {
    if (device.is_cpu()) return HostBuffer(bytes).memory();
    const c10::DeviceGuard guard(device);
    return python::allocateGpuMemory(bytes, python::GpuBufferGranularity::MultiCastMinimum).memory;
  }

  /// The block in which an address lies.
  std::shared_ptr<SymmetricBlock> find(void* address) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto found = blocks_.upper_bound(wanted);
    if (found != blocks_.begin() && wanted < (--found)->first + std::max<std::size_t>(found->second->bytes, 1)) {
      return found->second;
    }
    throw Error(
        "the tensor is not in symmetric memory of mscclpp: allocate it with torch.distributed._symmetric_memory.empty "
        "after set_backend(\"MSCCLPP\")",
        ErrorCode::InvalidUsage);
  }

  const c10::DeviceType type_;
  std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<SymmetricBlock>> blocks_;  // by their first address
};

}  // namespace

void registerSymmetricMemory() {
  using namespace c10d::symmetric_memory;
  register_availability(symmetricMemoryName, c10::make_intrusive<SymmetricAllocator>(c10::DeviceType::CUDA));
  if (!has_allocator(c10::DeviceType::CPU)) {
    register_allocator(c10::DeviceType::CPU, c10::make_intrusive<SymmetricAllocator>(c10::DeviceType::CPU));
  }
}

}  // namespace mscclpp::torch_c10d
