// An address range with physical GPU memory behind it (virtual memory management).
#pragma once

#include <cuda.h>

#include <cstddef>

namespace mscclpp::detail {

/// Owns a handle of physical memory. Mappings of it keep the memory alive, but not the handle.
class PhysicalHandle {
 public:
  explicit PhysicalHandle(CUmemGenericAllocationHandle handle) noexcept : handle_(handle) {}
  ~PhysicalHandle();
  PhysicalHandle(const PhysicalHandle&) = delete;
  PhysicalHandle& operator=(const PhysicalHandle&) = delete;
  CUmemGenericAllocationHandle get() const noexcept { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

/// Maps `bytes` bytes of `handle`, starting at `offset`, at a new address with read and write access for `device`.
/// Memory must be mapped as a whole; a multicast object may be mapped in parts.
void* mapPhysical(const PhysicalHandle& handle, std::size_t bytes, std::size_t alignment, int device,
                  std::size_t offset = 0);

/// Grants one more device read and write access to a mapping.
void allowAccess(CUdeviceptr base, std::size_t bytes, int device);

/// Waits until the current device no longer uses it, unmaps it and frees the address range.
void unmapPhysical(void* base, std::size_t bytes) noexcept;

}  // namespace mscclpp::detail
