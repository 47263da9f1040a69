#include "copy_pipeline.hpp"

namespace mscclpp::kernels {

CopyPipeline::CopyPipeline(Communicator& communicator, const char* what)
    : team_(communicator, DeviceType::GPU, 1, nullptr, what) {}

void CopyPipeline::begin(cudaStream_t stream) {
  team_.requireSound();
  stream_ = stream;
  steps_ = 0;
  copies_.fork(stream);
  team_.engine().use(copies_.get());
  team_.engine().barrier();
}

void CopyPipeline::copy(void* to, const void* from, std::size_t bytes) {
  team_.engine().copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

void CopyPipeline::endStep() {
  if (steps_ == ends_.size()) ends_.push_back(gpu::streamEvents().make());
  barriers_.fork(copies_.get());
  team_.engine().use(barriers_.get());
  team_.engine().barrier();
  gpu::streamEvents().record(ends_[steps_++], barriers_.get());
  team_.engine().use(copies_.get());
}

void CopyPipeline::wait(std::size_t step) {
  gpu::streamEvents().wait(stream_, ends_.at(step));
}

}  // namespace mscclpp::kernels
