// Memory that a verbs device may read and write: regions, and the table in which signals find them by id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "host/memory/memory_transport.hpp"
#include "host/transport/verbs/verbs_device.hpp"

namespace mscclpp::detail::ib {

/// One registration with the device; deregistered with the last owner.
class Region {
 public:
  Region(std::shared_ptr<VerbsDevice> device, void* data, std::size_t size, std::uint32_t id);

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// -1 for host memory.
  int gpu() const noexcept { return gpu_; }
  std::uint32_t id() const noexcept { return id_; }
  std::uint32_t localKey() const noexcept { return region_->lkey; }
  std::uint32_t remoteKey() const noexcept { return region_->rkey; }

 private:
  std::shared_ptr<VerbsDevice> device_;
  char* data_;
  std::size_t size_;
  int gpu_;
  std::uint32_t id_;
  IbvPtr<ibv_mr> region_;
};

/// The keys of a region as a MemoryHandle carries them, for peers and for the owner.
struct RegionKeys {
  std::uint32_t remoteKey;
  /// The id in the owner's table.
  std::uint32_t id;

  static RegionKeys of(const MemoryHandle& handle) {
    RegionKeys keys;
    static_assert(sizeof(keys) <= sizeof(handle.access));
    std::memcpy(&keys, handle.access.data(), sizeof(keys));
    return keys;
  }
  void writeTo(MemoryHandle& handle) const;
};

/// The regions of one device in use. Any thread may call any function.
class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  explicit RegionTable(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}

  /// A region for exactly this memory. Registering pins its pages, so a range of a HostBuffer is registered once and
  /// shared; other memory cannot be identified and is registered each time. After the last pointer is released, neither
  /// the device nor use() accesses the memory.
  std::shared_ptr<const Region> registerMemory(void* data, std::size_t size);

  /// A region to read from: its local key, and whether the host can read it too.
  struct Source {
    std::uint32_t id;
    std::uint64_t address;
    std::uint64_t size;
    std::uint32_t localKey;
    bool onHost;
  };
  /// Throws Error(InvalidUsage) unless the region with this id is [address, address + size): ids are valid only in
  /// their own table, and the memory may be a peer's.
  Source sourceOf(std::uint32_t id, std::uint64_t address, std::uint64_t size) const;

  /// Calls use(region), which stays valid during the call; returns false if there is no such region (any more).
  template <typename Use>
  bool use(std::uint32_t id, Use use) const {
    std::lock_guard lock(mutex_);
    const auto region = find(id);
    if (region) use(*region);
    return region != nullptr;
  }

 private:
  /// An allocation, and a range of it.
  using Range = std::tuple<Id128, void*, std::size_t>;

  // With the lock held.
  std::shared_ptr<Region> find(std::uint32_t id) const;
  std::shared_ptr<Region> findRange(const Range& range) const;

  const OwnerProcess owner_;
  std::shared_ptr<VerbsDevice> device_;
  // Also held while releasing a region, so that none is released while another thread uses it.
  mutable std::mutex mutex_;
  std::uint32_t lastId_ = 0;
  std::map<Range, std::weak_ptr<Region>> byRange_;
  std::map<std::uint32_t, std::weak_ptr<Region>> byId_;
};

}  // namespace mscclpp::detail::ib
