// GPU memory of one machine: exported as a descriptor or a runtime IPC handle, and mapped by the peers.
#include <algorithm>
#include <cstring>
#include <string>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "host/cuda/mapped_range.hpp"
#include "host/transport/cuda_ipc/cuda_ipc.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::detail {

namespace {

struct AllocationRange {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  int device = -1;
};

AllocationRange allocationRangeOf(void* data, std::size_t size) {
  AllocationRange range;
  range.device = gpuIdFromAddress(data);
  if (range.device < 0) {
    throw NotShareableError(
        "registerMemory: Transport::CudaIpc needs GPU memory, and this is host or managed memory; allocate it with "
        "GpuBuffer, or register host memory of a HostBuffer with Transport::SharedMemory");
  }
  const CudaDeviceGuard guard(range.device);  // the driver searches the allocations of the current device only
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  MSCCLPP_CUTHROW(driver().memGetAddressRange(&range.base, &range.bytes, address));
  const std::size_t offset = address - range.base;
  if (size > range.bytes - offset) {
    const std::string text = "registerMemory: " + std::to_string(size) + " bytes exceed the allocation, which has " +
                             std::to_string(range.bytes - offset) +
                             " from there on; register each allocation by itself";
    // A range of addresses may be mapped to several cuMem allocations, as by allocators with expandable segments.
    if (isCuMemMapAllocated(static_cast<char*>(data) + size - 1)) throw NotShareableError(text);
    throw Error(text, ErrorCode::InvalidUsage);
  }
  return range;
}

// The driver numbers the allocations of a process: a new allocation at the same address has another number.
Id128 allocationId(const AllocationRange& range) {
  unsigned long long number = 0;
  static_cast<void>(driver().pointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, range.base));
  Id128 id = processId();
  for (std::size_t i = 0; i < 8; ++i) {
    id[i] ^= static_cast<std::uint8_t>(number >> 8 * i);
    id[i + 8] ^= static_cast<std::uint8_t>(range.base >> 8 * i);
  }
  return id;
}

ExportTable::Descriptor exportPosixFd(const PhysicalHandle& physical) {
  CUmemAllocationProp properties{};
  MSCCLPP_CUTHROW(driver().memGetAllocationPropertiesFromHandle(&properties, physical.get()));
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    throw NotShareableError(
        "registerMemory: this cuMem memory cannot be shared, as it was made without "
        "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; allocate it with GpuBuffer, or request that handle type");
  }
  int fd = -1;
  MSCCLPP_CUTHROW(
      driver().memExportToShareableHandle(&fd, physical.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return {fd, std::make_shared<UniqueFd>(fd)};
}

class PosixFdMapping : public Mapping {
 public:
  PosixFdMapping(const MemoryHandle& handle, int device, Deadline deadline)
      : Mapping(handle.allocationBytes), device_(device) {
    const UniqueFd fd = FdServer::fetch(handle.fdKey(), deadline);
    CUmemGenericAllocationHandle imported;
    MSCCLPP_CUTHROW(driver().memImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{fd.get()}),
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    const PhysicalHandle physical(imported);
    const std::size_t alignment = getCuAllocationGranularity(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    base_ = static_cast<char*>(mapPhysical(physical, bytes(), alignment, device));
  }
  ~PosixFdMapping() override {
    freeOnGpu(device_, [this] { unmapPhysical(base_, bytes()); });
  }

 private:
  int device_;
};

class IpcHandleMapping : public Mapping {
 public:
  IpcHandleMapping(const MemoryHandle& handle, int device) : Mapping(handle.allocationBytes), device_(device) {
    cudaIpcMemHandle_t ipc;
    static_assert(sizeof(ipc) == sizeof(handle.access));
    std::memcpy(&ipc, handle.access.data(), sizeof(ipc));
    void* mapped = nullptr;
    MSCCLPP_CUDATHROW(cudaIpcOpenMemHandle(&mapped, ipc, cudaIpcMemLazyEnablePeerAccess));
    base_ = static_cast<char*>(mapped);
  }
  ~IpcHandleMapping() override {
    freeOnGpu(device_, [this] { static_cast<void>(cudaIpcCloseMemHandle(base_)); });
  }

 private:
  int device_;
};

class CudaIpcTransport : public TransportBackend {
 public:
  explicit CudaIpcTransport(ExportTable& exports)
      : TransportBackend(Transport::CudaIpc, cudaIpcProperties), exports_(exports) {}

  ExportedMemory exportMemory(void* data, std::size_t size) override {
    AvoidCudaGraphCaptureGuard captureGuard;
    const AllocationRange range = allocationRangeOf(data, size);
    CudaDeviceGuard deviceGuard(range.device);
    MemoryHandle handle{};
    handle.transport = transport();
    handle.allocationBytes = range.bytes;
    handle.offset = reinterpret_cast<CUdeviceptr>(data) - range.base;
    handle.allocation = allocationId(range);

    CUmemGenericAllocationHandle retained;
    if (driver().memRetainAllocationHandle(&retained, data) == CUDA_SUCCESS) {
      const PhysicalHandle physical(retained);
      auto registration = exports_.exportAllocation(handle.allocation, [&] { return exportPosixFd(physical); });
      handle.kind = HandleKind::CudaFd;
      handle.setAccess(registration->key());
      return {handle, registration};
    }
    cudaIpcMemHandle_t ipc;
    if (const cudaError_t result = cudaIpcGetMemHandle(&ipc, data); result != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw NotShareableError(std::string("registerMemory: this GPU memory cannot be shared (") +
                              cudaGetErrorString(result) +
                              "); allocate it with GpuBuffer or cudaMalloc: memory of a stream-ordered pool, managed "
                              "memory and memory mapped from a peer cannot be passed on");
    }
    handle.kind = HandleKind::CudaIpc;
    std::memcpy(handle.access.data(), &ipc, sizeof(ipc));
    return {handle, nullptr};
  }

  bool isAllocated(const MemoryHandle& handle, void* data) const override {
    AvoidCudaGraphCaptureGuard captureGuard;
    if (gpuIdFromAddress(data) < 0) return false;
    const AllocationRange range = allocationRangeOf(data, 0);
    const CudaDeviceGuard deviceGuard(range.device);
    return allocationId(range) == handle.allocation;
  }

  ImportedMemory importMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline) override {
    if (handle.kind != HandleKind::CudaFd && handle.kind != HandleKind::CudaIpc) throwUnknownHandle();
    checkBounds(handle, size);
    AvoidCudaGraphCaptureGuard captureGuard;
    const int device = currentGpu();
    auto mapping = MappingTable::instance().findOrCreate(handle, device, deadline, [&]() -> std::shared_ptr<Mapping> {
      if (handle.kind == HandleKind::CudaFd) return std::make_shared<PosixFdMapping>(handle, device, deadline);
      return std::make_shared<IpcHandleMapping>(handle, device);
    });
    return {mapping->base() + handle.offset, mapping};
  }

  void importLocalMemory(const MemoryHandle& handle, void* data, std::size_t size) override {
    AvoidCudaGraphCaptureGuard captureGuard;
    if (!isAllocated(handle, data)) {
      throw Error("the memory was freed by its owner, a rank of this process; keep it while peers may map it",
                  ErrorCode::RemoteError);
    }
    const AllocationRange range = allocationRangeOf(data, size);
    const int device = currentGpu();
    if (range.device == device) return;
    if (isCuMemMapAllocated(data)) return allowAccess(range.base, range.bytes, device);
    int possible = 0;
    MSCCLPP_CUDATHROW(cudaDeviceCanAccessPeer(&possible, device, range.device));
    if (possible == 0) {
      throw NotShareableError("GPU " + std::to_string(device) + " cannot reach the memory of GPU " +
                              std::to_string(range.device));
    }
    const cudaError_t result = cudaDeviceEnablePeerAccess(range.device, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
    } else {
      MSCCLPP_CUDATHROW(result);
    }
  }

  std::shared_ptr<EndpointResources> createEndpoint(const EndpointConfig& config) override {
    if (config.cudaIpc.streams < 1 || config.cudaIpc.streams > 16 || config.cudaIpc.bytesPerStream == 0) {
      throw Error("createEndpoint: EndpointConfig::cudaIpc: streams must be from 1 to 16, and bytesPerStream positive",
                  ErrorCode::InvalidUsage);
    }
    return nullptr;
  }

  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline) override {
    return makeCudaIpcConnection(std::move(context), local, remote);
  }

 private:
  ExportTable& exports_;
};

}  // namespace

std::unique_ptr<TransportBackend> makeCudaIpcTransport(ExportTable& exports) {
  return std::make_unique<CudaIpcTransport>(exports);
}

}  // namespace mscclpp::detail
