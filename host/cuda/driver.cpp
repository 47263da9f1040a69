#include "host/cuda/driver.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::detail {

namespace {

// `version` is that of the function's type, as in PFN_<name>_v<version>: the driver may have several.
template <typename Function>
void load(Function& function, const char* name, unsigned int version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  MSCCLPP_CUDATHROW(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw Error(std::string("the CUDA driver has no ") + name + " (as of CUDA " + std::to_string(version / 1000) + "." +
                    std::to_string(version % 1000 / 10) + "); install a newer driver",
                ErrorCode::SystemError);
  }
  function = reinterpret_cast<Function>(address);
}

Driver loadAll() {
  Driver d{};
  load(d.deviceGetAttribute, "cuDeviceGetAttribute", 2000);
  load(d.pointerGetAttribute, "cuPointerGetAttribute", 4000);
  load(d.memGetAddressRange, "cuMemGetAddressRange", 3020);
  load(d.memGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020);
  load(d.memCreate, "cuMemCreate", 10020);
  load(d.memRelease, "cuMemRelease", 10020);
  load(d.memRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000);
  load(d.memGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", 10020);
  load(d.memAddressReserve, "cuMemAddressReserve", 10020);
  load(d.memAddressFree, "cuMemAddressFree", 10020);
  load(d.memMap, "cuMemMap", 10020);
  load(d.memUnmap, "cuMemUnmap", 10020);
  load(d.memSetAccess, "cuMemSetAccess", 10020);
  load(d.memExportToShareableHandle, "cuMemExportToShareableHandle", 10020);
  load(d.memImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020);
  load(d.memcpyAsync, "cuMemcpyAsync", 4000);
  load(d.streamWriteValue64, "cuStreamWriteValue64", 11070);
  load(d.streamBatchMemOp, "cuStreamBatchMemOp", 11070);
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver table = loadAll();
  // The runtime creates a device's context with the first call that needs it; driver calls do not.
  AvoidCudaGraphCaptureGuard captureGuard;
  MSCCLPP_CUDATHROW(cudaFree(nullptr));
  return table;
}

PFN_cuGetErrorString_v6000 loadGetErrorString() {
  PFN_cuGetErrorString_v6000 function = nullptr;
  load(function, "cuGetErrorString", 6000);
  return function;
}

PFN_cuMemGetHandleForAddressRange_v11070 loadMemGetHandleForAddressRange() {
  PFN_cuMemGetHandleForAddressRange_v11070 function = nullptr;
  load(function, "cuMemGetHandleForAddressRange", 11070);
  return function;
}

PFN_cuFlushGPUDirectRDMAWrites_v11030 loadFlushGpuDirectRdmaWrites() {
  PFN_cuFlushGPUDirectRDMAWrites_v11030 function = nullptr;
  load(function, "cuFlushGPUDirectRDMAWrites", 11030);
  return function;
}

const KernelDriver& kernelDriver() {
  static const KernelDriver table = [] {
    KernelDriver d{};
    load(d.libraryLoadData, "cuLibraryLoadData", 12000);
    load(d.libraryUnload, "cuLibraryUnload", 12000);
    load(d.libraryGetKernel, "cuLibraryGetKernel", 12000);
    load(d.kernelGetFunction, "cuKernelGetFunction", 12000);
    load(d.funcGetAttribute, "cuFuncGetAttribute", 2020);
    load(d.funcSetAttribute, "cuFuncSetAttribute", 9000);
    load(d.funcGetParamInfo, "cuFuncGetParamInfo", 12040);
    load(d.launchKernelEx, "cuLaunchKernelEx", 11060);
    return d;
  }();
  return table;
}

const MulticastDriver& multicastDriver() {
  static const MulticastDriver table = [] {
    MulticastDriver d{};
    load(d.getGranularity, "cuMulticastGetGranularity", 12010);
    load(d.create, "cuMulticastCreate", 12010);
    load(d.addDevice, "cuMulticastAddDevice", 12010);
    load(d.bindAddr, "cuMulticastBindAddr", 12010);
    load(d.unbind, "cuMulticastUnbind", 12010);
    return d;
  }();
  return table;
}

}  // namespace mscclpp::detail
