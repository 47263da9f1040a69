#include "host/transport/verbs/region.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_rdma.hpp"
#include "host/memory/host_allocation.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

// No relaxed ordering: a peer may store or add to any word of a region as a signal, which must not overtake data.
int accessOf(const VerbsDevice& device) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return device.hasAtomics() ? access | IBV_ACCESS_REMOTE_ATOMIC : access;
}

bool haveNvidiaPeermem() {
  return std::filesystem::exists("/sys/module/nvidia_peermem") || std::filesystem::exists("/sys/module/nv_peer_mem");
}

IbvPtr<ibv_mr> registerHostMemory(const VerbsDevice& device, void* data, std::size_t size) {
  IbvPtr<ibv_mr> region(ibvSymbols().regMr(device.domain(), data, size, accessOf(device)));
  if (!region) {
    const int reason = errno;
    throw IbError("registering " + std::to_string(size) + " bytes of host memory with " + device.name() +
                      (reason == ENOMEM ? "; raise the limit of locked memory (ulimit -l)" : ""),
                  reason);
  }
  return region;
}

// By dma-buf if the kernel, the driver and libibverbs support it; otherwise by nvidia-peermem, which lets a device
// register GPU addresses as if they were host memory. Compiled but not run: it needs a network device and a GPU.
IbvPtr<ibv_mr> registerGpuMemory(const VerbsDevice& device, void* data, std::size_t size) {
  if (env()->forceDisableGdr) {
    throw Error("registerMemory: MSCCLPP_FORCE_DISABLE_GDR is set, so " + device.name() +
                    " may not reach GPU memory; unset it, or use Transport::Ethernet",
                ErrorCode::InvalidUsage);
  }
  int reason = ENOTSUP;
  if (ibvSymbols().regDmabufMr != nullptr) {
    if (const auto exported = exportDmaBuf(data, size)) {
      IbvPtr<ibv_mr> region(ibvSymbols().regDmabufMr(device.domain(), exported->offset, size,
                                                     reinterpret_cast<std::uint64_t>(data), exported->fd.get(),
                                                     accessOf(device)));
      if (region) return region;
      reason = errno;
    }
  }
  if (haveNvidiaPeermem()) {
    IbvPtr<ibv_mr> region(ibvSymbols().regMr(device.domain(), data, size, accessOf(device)));
    if (region) return region;
    reason = errno;
  }
  throw IbError("registering " + std::to_string(size) + " bytes of GPU memory with " + device.name() +
                    " by dma-buf or nvidia-peermem; load the nvidia-peermem module, or use a kernel of 5.12 or later "
                    "with NVIDIA's open kernel modules",
                reason);
}

}  // namespace

Region::Region(std::shared_ptr<VerbsDevice> device, void* data, std::size_t size, std::uint32_t id)
    : device_(std::move(device)),
      data_(static_cast<char*>(data)),
      size_(size),
      gpu_(gpuOf(data)),
      id_(id),
      region_(gpu_ < 0 ? registerHostMemory(*device_, data, size) : registerGpuMemory(*device_, data, size)) {}

void RegionKeys::writeTo(MemoryHandle& handle) const {
  std::memcpy(handle.access.data(), this, sizeof(*this));
}

std::shared_ptr<const Region> RegionTable::registerMemory(void* data, std::size_t size) {
  // A registration may outlive its memory, and new memory may then have the same address: the address alone does not
  // identify it.
  const auto allocation = HostAllocation::find(data, size);
  const Range range{allocation ? allocation->id() : Id128{}, data, size};
  std::shared_ptr<Region> region;
  std::uint32_t id = 0;
  {
    std::lock_guard lock(mutex_);
    if (allocation) region = findRange(range);
    if (!region) id = ++lastId_;
  }
  if (!region) {
    // Without the lock, which is taken for every signal that arrives: pinning gigabytes takes seconds. If another
    // thread has registered the same range meanwhile, both use its region.
    auto made = std::make_shared<Region>(device_, data, size, id);
    std::lock_guard lock(mutex_);
    if (allocation) region = findRange(range);
    if (!region) {
      region = std::move(made);
      std::erase_if(byRange_, [](const auto& entry) { return entry.second.expired(); });
      std::erase_if(byId_, [](const auto& entry) { return entry.second.expired(); });
      if (allocation) byRange_[range] = region;
      byId_[id] = region;
    }
  }
  const Region* pointer = region.get();
  return {pointer, [table = shared_from_this(), held = std::move(region)](const Region*) mutable {
            // In a forked child the lock may have been held at the fork.
            std::unique_lock lock(table->mutex_, std::defer_lock);
            if (table->owner_.isCurrent()) lock.lock();
            held.reset();
          }};
}

RegionTable::Source RegionTable::sourceOf(std::uint32_t id, std::uint64_t address, std::uint64_t size) const {
  Source source{};
  use(id, [&](const Region& region) {
    source = {id, reinterpret_cast<std::uint64_t>(region.data()), region.size(), region.localKey(), region.gpu() < 0};
  });
  if (source.address != address || source.size != size) {
    throw Error(
        "Connection: the source is not registered with this rank's context; pass a RegisteredMemory that "
        "Context::registerMemory returned here",
        ErrorCode::InvalidUsage);
  }
  return source;
}

std::shared_ptr<Region> RegionTable::findRange(const Range& range) const {
  const auto found = byRange_.find(range);
  return found == byRange_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Region> RegionTable::find(std::uint32_t id) const {
  const auto found = byId_.find(id);
  return found == byId_.end() ? nullptr : found->second.lock();
}

}  // namespace mscclpp::detail::ib
