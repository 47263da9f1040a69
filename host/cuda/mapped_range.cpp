#include "host/cuda/mapped_range.hpp"

#include <cuda_runtime_api.h>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::detail {

PhysicalHandle::~PhysicalHandle() {
  // If there is a handle, the driver has been loaded.
  if (isGpuOwner()) static_cast<void>(driver().memRelease(handle_));
}

void allowAccess(CUdeviceptr base, std::size_t bytes, int device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MSCCLPP_CUTHROW(driver().memSetAccess(base, bytes, &access, 1));
}

void* mapPhysical(const PhysicalHandle& handle, std::size_t bytes, std::size_t alignment, int device,
                  std::size_t offset) {
  const Driver& d = driver();
  CUdeviceptr base = 0;
  MSCCLPP_CUTHROW(d.memAddressReserve(&base, bytes, alignment, 0, 0));
  bool mapped = false;
  try {
    MSCCLPP_CUTHROW(d.memMap(base, bytes, offset, handle.get(), 0));
    mapped = true;
    allowAccess(base, bytes, device);
  } catch (...) {
    if (mapped) static_cast<void>(d.memUnmap(base, bytes));
    static_cast<void>(d.memAddressFree(base, bytes));
    throw;
  }
  return reinterpret_cast<void*>(base);
}

void unmapPhysical(void* base, std::size_t bytes) noexcept {
  // At process exit the driver may already be unloaded; then there is nothing left to unmap.
  if (cudaDeviceSynchronize() == cudaErrorCudartUnloading) return;
  try {
    const Driver& d = driver();
    const auto address = reinterpret_cast<CUdeviceptr>(base);
    static_cast<void>(d.memUnmap(address, bytes));
    static_cast<void>(d.memAddressFree(address, bytes));
  } catch (...) {  // a broken context: the process has lost its GPU memory anyway
  }
}

}  // namespace mscclpp::detail
