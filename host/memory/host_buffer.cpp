#include "mscclpp/host/memory/host_buffer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>

#include "host/memory/host_allocation.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace detail {

namespace {

struct AllocationTable {
  std::mutex mutex;
  std::map<std::uintptr_t, std::weak_ptr<HostAllocation>> byBase;
};

// Never destroyed: an allocation with static storage may outlive any other static object.
AllocationTable& allocationTable() {
  static auto* instance = new AllocationTable;
  return *instance;
}

std::size_t roundUpToPages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = bytes / page + (bytes % page == 0 ? 0 : 1);
  // Pages are allocated at their first use, as for any memory; a size that cannot ever fit is rejected now.
  if (pages > static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES))) {
    throw SysError("HostBuffer: " + std::to_string(bytes) + " bytes are more than this machine has", ENOMEM);
  }
  return pages * page;
}

}  // namespace

HostAllocation::HostAllocation(std::size_t bytes, const std::string& name)
    : bytes_(roundUpToPages(bytes)), id_(randomId()) {
  fd_ = UniqueFd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_) throw SysError("memfd_create", errno);
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) throw SysError("sizing shared memory", errno);
  // Prevents any process from shrinking it while others access it.
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw SysError("sealing shared memory", errno);
  }
  void* mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) throw SysError("mapping shared memory", errno);
  base_ = static_cast<char*>(mapped);
}

HostAllocation::~HostAllocation() {
  if (owner_.isCurrent()) {  // otherwise the lock may have been held at the fork
    std::lock_guard lock(allocationTable().mutex);
    allocationTable().byBase.erase(reinterpret_cast<std::uintptr_t>(base_));
  }
  ::munmap(base_, bytes_);
}

std::shared_ptr<HostAllocation> HostAllocation::create(std::size_t bytes, const std::string& name) {
  std::shared_ptr<HostAllocation> allocation(new HostAllocation(bytes, name));
  std::lock_guard lock(allocationTable().mutex);
  allocationTable().byBase[reinterpret_cast<std::uintptr_t>(allocation->base())] = allocation;
  return allocation;
}

std::shared_ptr<HostAllocation> HostAllocation::find(const void* pointer, std::size_t size) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  // Outlives the lock: if this is the last reference, the destructor takes the lock itself.
  std::shared_ptr<HostAllocation> allocation;
  std::lock_guard lock(allocationTable().mutex);
  auto entry = allocationTable().byBase.upper_bound(address);
  // An entry may have expired: its allocation is about to remove it, or was freed in a forked child.
  while (!allocation && entry != allocationTable().byBase.begin()) allocation = (--entry)->second.lock();
  if (!allocation) return nullptr;
  const std::size_t offset = address - entry->first;
  const bool inside = offset <= allocation->bytes() && size <= allocation->bytes() - offset;
  return inside ? allocation : nullptr;
}

}  // namespace detail

HostBuffer::HostBuffer(std::size_t bytes, const std::string& name)
    : allocation_(bytes == 0 ? nullptr : detail::HostAllocation::create(bytes, name)), bytes_(bytes) {}

HostBuffer::HostBuffer(HostBuffer&&) noexcept = default;
HostBuffer& HostBuffer::operator=(HostBuffer&&) noexcept = default;
HostBuffer::~HostBuffer() = default;

void* HostBuffer::data() const noexcept {
  return allocation_ ? allocation_->base() : nullptr;
}

std::shared_ptr<void> HostBuffer::memory() const noexcept {
  return {allocation_, data()};
}

}  // namespace mscclpp
