// Multicast among GPUs: the driver's multicast object, which refers to memory of each GPU, and its mapping.
#include <cuda_runtime_api.h>

#include <string>

#include "host/base/byte_stream.hpp"
#include "host/channel/switch/multicast_group.hpp"
#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "host/cuda/mapped_range.hpp"
#include "host/memory/memory_transport.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::detail {

namespace {

constexpr WireFormat multicastObjectFormat{"multicast object", 0x4d435354, 1};

/// The binding of this rank's memory to a multicast object; unbound by the destructor.
class MulticastBinding {
 public:
  MulticastBinding(std::shared_ptr<const PhysicalHandle> object, int device, std::size_t offset, void* data,
                   std::size_t bytes)
      : object_(std::move(object)), device_(device), offset_(offset), bytes_(bytes) {
    MSCCLPP_CUTHROW(multicastDriver().bindAddr(object_->get(), offset, reinterpret_cast<CUdeviceptr>(data), bytes, 0));
  }
  ~MulticastBinding() {
    if (isGpuOwner()) static_cast<void>(multicastDriver().unbind(object_->get(), device_, offset_, bytes_));
  }
  MulticastBinding(const MulticastBinding&) = delete;
  MulticastBinding& operator=(const MulticastBinding&) = delete;

 private:
  std::shared_ptr<const PhysicalHandle> object_;
  int device_;
  std::size_t offset_;
  std::size_t bytes_;
};

class GpuMulticastGroup : public MulticastGroup {
 public:
  explicit GpuMulticastGroup(int device)
      : device_(device), granularity_(getMulticastGranularity(1, CU_MULTICAST_GRANULARITY_MINIMUM)) {}

  std::size_t granularity() const override { return granularity_; }
  std::string deviceKey() const override { return gpuPciBusId(device_); }

  std::vector<char> create(std::size_t bytes, int members) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    CUmulticastObjectProp properties{};
    properties.numDevices = static_cast<unsigned int>(members);
    properties.size = bytes;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle created;
    MSCCLPP_CUTHROW(multicastDriver().create(&created, &properties));
    object_ = std::make_shared<PhysicalHandle>(created);
    int fd = -1;
    MSCCLPP_CUTHROW(driver().memExportToShareableHandle(&fd, created, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    auto descriptor = std::make_shared<UniqueFd>(fd);
    registration_ = FdServer::ofProcess()->registerFd(fd, descriptor);
    ByteWriter writer(multicastObjectFormat);
    writer.put(registration_->key().server).put(registration_->key().token);
    return writer.finish();
  }

  void import(const std::vector<char>& object, const Deadline& deadline) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    ByteReader reader(object, multicastObjectFormat);
    FdServer::Key key;
    key.server = reader.get<Id128>();
    key.token = reader.get<Id128>();
    reader.expectEnd();
    const UniqueFd fd = FdServer::fetch(key, deadline);
    CUmemGenericAllocationHandle imported;
    MSCCLPP_CUTHROW(driver().memImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{fd.get()}),
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    object_ = std::make_shared<PhysicalHandle>(imported);
  }

  void addDevice() override {
    registration_.reset();  // all ranks have fetched it
    MSCCLPP_CUTHROW(multicastDriver().addDevice(object_->get(), device_));
  }

  std::vector<char> exportMemory(void* data, std::size_t bytes) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    if (gpuIdFromAddress(data) != device_) {
      throw Error(
          "the memory is not of GPU " + std::to_string(device_) + ", which was current when the connection was made",
          ErrorCode::InvalidUsage);
    }
    if (!isCuMemMapAllocated(data)) {
      throw Error("multicast takes memory of cuMemCreate, as GpuBuffer allocates it, and not of cudaMalloc",
                  ErrorCode::InvalidUsage);
    }
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(data);
    MSCCLPP_CUTHROW(driver().memGetAddressRange(&base, &size, address));
    if (bytes > size - (address - base)) {
      throw Error(std::to_string(bytes) + " bytes exceed the allocation, which has " +
                      std::to_string(size - (address - base)) + " from there on",
                  ErrorCode::InvalidUsage);
    }
    return {};
  }

  std::shared_ptr<const void> bind(std::size_t offset, void* data, std::size_t bytes) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    return std::make_shared<MulticastBinding>(object_, device_, offset, data, bytes);
  }

  MulticastMapping map(std::size_t offset, std::size_t bytes, const std::vector<std::vector<char>>&,
                       const Deadline&) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    void* base = mapPhysical(*object_, bytes, granularity_, device_, offset);
    const int device = device_;
    std::shared_ptr<const void> owner(base, [bytes, device, object = object_](const void* mapped) {
      freeOnGpu(device, [&] { unmapPhysical(const_cast<void*>(mapped), bytes); });
    });
    return {{static_cast<std::byte*>(base), 0}, owner};
  }

 private:
  int device_;
  std::size_t granularity_;
  std::shared_ptr<const PhysicalHandle> object_;
  std::shared_ptr<FdServer::Registration> registration_;
};

}  // namespace

std::string whyNoMulticast(int device) {
  if (env()->forceDisableNvls) return "MSCCLPP_FORCE_DISABLE_NVLS is set or NCCL_NVLS_ENABLE is 0";
  int supported = 0;
  MSCCLPP_CUTHROW(driver().deviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                              device < 0 ? currentGpu() : device));
  return supported != 0 ? std::string()
                        : "this GPU does not support it: it requires an NVSwitch, and a GPU of sm_90 or newer";
}

std::unique_ptr<MulticastGroup> makeGpuMulticastGroup() {
  if (const std::string why = whyNoMulticast(-1); !why.empty())
    throw Error("multicast is not available: " + why, ErrorCode::InvalidUsage);
  return std::make_unique<GpuMulticastGroup>(currentGpu());
}

}  // namespace mscclpp::detail

namespace mscclpp {

bool isNvlsSupported() {
  return detail::whyNoMulticast(-1).empty();
}

}  // namespace mscclpp
