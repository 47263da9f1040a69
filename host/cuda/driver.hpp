// The functions of the CUDA driver that the library uses. It is never linked: a binary also starts without a driver.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

namespace mscclpp::detail {

struct Driver {
  PFN_cuDeviceGetAttribute_v2000 deviceGetAttribute;
  PFN_cuPointerGetAttribute_v4000 pointerGetAttribute;
  PFN_cuMemGetAddressRange_v3020 memGetAddressRange;
  PFN_cuMemGetAllocationGranularity_v10020 memGetAllocationGranularity;
  PFN_cuMemCreate_v10020 memCreate;
  PFN_cuMemRelease_v10020 memRelease;
  PFN_cuMemRetainAllocationHandle_v11000 memRetainAllocationHandle;
  PFN_cuMemGetAllocationPropertiesFromHandle_v10020 memGetAllocationPropertiesFromHandle;
  PFN_cuMemAddressReserve_v10020 memAddressReserve;
  PFN_cuMemAddressFree_v10020 memAddressFree;
  PFN_cuMemMap_v10020 memMap;
  PFN_cuMemUnmap_v10020 memUnmap;
  PFN_cuMemSetAccess_v10020 memSetAccess;
  PFN_cuMemExportToShareableHandle_v10020 memExportToShareableHandle;
  PFN_cuMemImportFromShareableHandle_v10020 memImportFromShareableHandle;
  PFN_cuMemcpyAsync_v4000 memcpyAsync;
  PFN_cuStreamWriteValue64_v11070 streamWriteValue64;
  PFN_cuStreamBatchMemOp_v11070 streamBatchMemOp;
};

/// Loaded at the first call, which ensures that the current device has a context, for all later driver calls. Throws
/// Error(SystemError) if there is no driver or it is too old.
const Driver& driver();

/// For error messages: needs no context.
PFN_cuGetErrorString_v6000 loadGetErrorString();

/// Loaded only when network devices are to access GPU memory.
PFN_cuMemGetHandleForAddressRange_v11070 loadMemGetHandleForAddressRange();
PFN_cuFlushGPUDirectRDMAWrites_v11030 loadFlushGpuDirectRdmaWrites();

/// Kernels of images that were compiled at run time. Loaded at the first call.
struct KernelDriver {
  PFN_cuLibraryLoadData_v12000 libraryLoadData;
  PFN_cuLibraryUnload_v12000 libraryUnload;
  PFN_cuLibraryGetKernel_v12000 libraryGetKernel;
  PFN_cuKernelGetFunction_v12000 kernelGetFunction;
  PFN_cuFuncGetAttribute_v2020 funcGetAttribute;
  PFN_cuFuncSetAttribute_v9000 funcSetAttribute;
  PFN_cuFuncGetParamInfo_v12040 funcGetParamInfo;
  PFN_cuLaunchKernelEx_v11060 launchKernelEx;
};
const KernelDriver& kernelDriver();

/// Multicast objects. Loaded at the first call, only when multicast may be used.
struct MulticastDriver {
  PFN_cuMulticastGetGranularity_v12010 getGranularity;
  PFN_cuMulticastCreate_v12010 create;
  PFN_cuMulticastAddDevice_v12010 addDevice;
  PFN_cuMulticastBindAddr_v12010 bindAddr;
  PFN_cuMulticastUnbind_v12010 unbind;
};
const MulticastDriver& multicastDriver();

}  // namespace mscclpp::detail
