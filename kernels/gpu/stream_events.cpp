#include "stream_events.hpp"

#include <cuda_runtime.h>

#include <limits>

#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::kernels::gpu {

namespace {

cudaEvent_t handleOf(const StreamEvents::Event& event) {
  return static_cast<cudaEvent_t>(event.get());
}

class CudaStreamEvents final : public StreamEvents {
 public:
  Event make() override {
    const int device = mscclpp::detail::currentGpu();
    const AvoidCudaGraphCaptureGuard captureGuard;  // it may be the first event in a capture
    cudaEvent_t event = nullptr;
    MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    mscclpp::detail::setGpuOwner();
    return {event, [device](cudaEvent_t made) {
              mscclpp::detail::freeOnGpu(device, [&] { static_cast<void>(cudaEventDestroy(made)); });
            }};
  }

  std::uint64_t idOf(CUstream_st* stream) override {
    // Never destroyed, and not to be asked while a stream that it synchronises with captures.
    if (stream == nullptr || stream == cudaStreamLegacy) return std::numeric_limits<std::uint64_t>::max();
    unsigned long long id = 0;
    MSCCLPP_CUDATHROW(cudaStreamGetId(stream, &id));
    return id;
  }

  std::uint64_t captureOf(CUstream_st* stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id);
    if (error == cudaErrorStreamCaptureImplicit) {
      // The default stream while a stream that synchronises with it captures: it does not capture itself.
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    MSCCLPP_CUDATHROW(error);
    return status == cudaStreamCaptureStatusNone ? 0 : id;
  }

  void record(const Event& event, CUstream_st* stream) override {
    MSCCLPP_CUDATHROW(cudaEventRecord(handleOf(event), stream));
  }
  void wait(CUstream_st* stream, const Event& event) override {
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream, handleOf(event), cudaEventWaitDefault));
  }
  void recordInGraph(const Event& event, CUstream_st* stream) override {
    MSCCLPP_CUDATHROW(cudaEventRecordWithFlags(handleOf(event), stream, cudaEventRecordExternal));
  }
  void waitInGraph(CUstream_st* stream, const Event& event) override {
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream, handleOf(event), cudaEventWaitExternal));
  }
};

}  // namespace

StreamEvents& streamEvents() {
  static CudaStreamEvents events;
  return events;
}

}  // namespace mscclpp::kernels::gpu
