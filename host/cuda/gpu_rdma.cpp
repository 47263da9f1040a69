// GPU memory and network devices. Not run yet, for lack of a machine with both. The calls and their order are those
// that the documentation of GPUDirect RDMA requires.
#include "host/cuda/gpu_rdma.hpp"

#include <cuda.h>
#include <unistd.h>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::detail {

namespace {

int attributeOf(CUdevice_attribute attribute, int device) {
  int value = 0;
  MSCCLPP_CUTHROW(driver().deviceGetAttribute(&value, attribute, device));
  return value;
}

class StreamWordWriter : public GpuWordWriter {
 public:
  explicit StreamWordWriter(int device) : device_(device) {
    CudaDeviceGuard deviceGuard(device_);
    stream_.set(cudaStreamNonBlocking);
    const int ordering = attributeOf(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device_);
    needsFlush_ = ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
    if (!needsFlush_) return;
    const int options = attributeOf(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device_);
    flush_ = loadFlushGpuDirectRdmaWrites();
    if ((options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) == 0) {
      throw Error("GPU " + std::to_string(device_) +
                      " can neither order nor flush what network devices write to it, which signals without atomics of "
                      "the network device need; use a device with atomics on both sides, or Transport::Ethernet",
                  ErrorCode::InvalidUsage);
    }
  }

  std::uint64_t load(const std::uint64_t* word) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    std::uint64_t value = 0;
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(&value, word, sizeof(value), cudaMemcpyDeviceToHost, stream_));
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    return value;
  }

  void store(std::uint64_t* word, std::uint64_t value) override {
    CudaDeviceGuard deviceGuard(device_);
    AvoidCudaGraphCaptureGuard captureGuard;
    // The network device reported the data as written, which means: as sent over PCIe. Only the flush, or the GPU's own
    // ordering guarantee, makes the data visible to the GPU before the word.
    if (needsFlush_) {
      MSCCLPP_CUTHROW(
          flush_(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    }
    const auto address = reinterpret_cast<CUdeviceptr>(word);
    MSCCLPP_CUTHROW(driver().streamWriteValue64(stream_, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  }

 private:
  int device_;
  CudaStreamWithFlags stream_;
  bool needsFlush_ = false;
  PFN_cuFlushGPUDirectRDMAWrites_v11030 flush_ = nullptr;
};

}  // namespace

std::optional<DmaBuf> exportDmaBuf(void* data, std::size_t size) {
  AvoidCudaGraphCaptureGuard captureGuard;
  const int device = gpuOf(data);
  CudaDeviceGuard deviceGuard(device);
  if (attributeOf(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 0) return std::nullopt;
  const auto getHandle = loadMemGetHandleForAddressRange();
  // The range must start and end at host page boundaries; the region within it is exact.
  const auto page = static_cast<CUdeviceptr>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<CUdeviceptr>(data) / page * page;
  const auto end = (reinterpret_cast<CUdeviceptr>(data) + size + page - 1) / page * page;
  int fd = -1;
  if (getHandle(&fd, begin, end - begin, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS) return std::nullopt;
  return DmaBuf{UniqueFd(fd), reinterpret_cast<CUdeviceptr>(data) - begin};
}

std::unique_ptr<GpuWordWriter> makeGpuWordWriter(int device) {
  return std::make_unique<StreamWordWriter>(device);
}

}  // namespace mscclpp::detail
