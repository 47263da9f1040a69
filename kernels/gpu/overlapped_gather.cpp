#include "overlapped_gather.hpp"

#include <cuda_runtime.h>

#include <utility>

#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "kernels/gpu/stream_events.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

namespace {

/// A stream whose kernels come before those of others that wait: the barriers of the copies are kernels of one block,
/// for which a GEMM that has all multiprocessors leaves no room.
std::shared_ptr<CUstream_st> makeUrgentStream() {
  int lowest = 0, highest = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  mscclpp::detail::setGpuOwner();
  const int device = mscclpp::detail::currentGpu();
  return {stream, [device](cudaStream_t made) {
            mscclpp::detail::freeOnGpu(device, [&] { static_cast<void>(cudaStreamDestroy(made)); });
          }};
}

}  // namespace

OverlappedGather::OverlappedGather(Communicator& communicator, std::shared_ptr<const Cublas> cublas,
                                   std::size_t maxRows, std::size_t depth)
    : rank_(static_cast<std::size_t>(communicator.bootstrap()->getRank())),
      ranks_(static_cast<std::size_t>(communicator.bootstrap()->getNranks())),
      cublas_(std::move(cublas)),
      gathered_(communicator, maxRows * depth * sizeof(bf16), DeviceType::GPU),
      mover_(communicator, DeviceType::GPU),
      side_(makeUrgentStream()),
      entered_(gpu::streamEvents().make()),
      gatheredAll_(gpu::streamEvents().make()) {}

void OverlappedGather::run(const FusedGemmCall& call) {
  const std::size_t own = call.rows / ranks_, first = rank_ * own, last = first + own;
  const auto multiply = [&](const void* input, std::size_t begin, std::size_t end) {
    if (begin == end) return;
    cublas_->multiply(input, call.weight, static_cast<bf16*>(call.output) + begin * call.width, end - begin, call.width,
                      call.depth, call.stream);
  };
  const auto* const gathered = static_cast<const bf16*>(gathered_.local());
  StreamEvents& events = gpu::streamEvents();
  events.record(entered_, call.stream);
  events.wait(side_.get(), entered_);
  mover_.allGather(call.input, gathered_.window(), own * call.depth * sizeof(bf16), side_.get());
  events.record(gatheredAll_, side_.get());
  multiply(call.input, first, last);
  events.wait(call.stream, gatheredAll_);
  multiply(gathered, 0, first);
  multiply(gathered + last * call.depth, last, call.rows);
}

}  // namespace mscclpp::kernels
