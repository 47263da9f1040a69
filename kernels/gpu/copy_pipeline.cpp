#include "copy_pipeline.hpp"

#include <exception>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

CopyPipeline::CopyPipeline(Communicator& communicator, const char* what, std::shared_ptr<WaitMonitor> monitor)
    : team_(communicator, DeviceType::GPU, 1, std::move(monitor), what) {}

void CopyPipeline::requireUsable() const {
  if (!hasFailed_) return;
  throw Error("an earlier call failed in the middle of its copies: make the object again, on all ranks",
              ErrorCode::InvalidUsage);
}

template <class Enqueue>
void CopyPipeline::attempt(const Enqueue& enqueue) {
  requireUsable();
  hasFailed_ = true;
  enqueue();
  hasFailed_ = false;
}

void CopyPipeline::begin(cudaStream_t stream) {
  team_.check();
  requireUsable();
  stream_ = stream;
  steps_ = 0;
  try {
    attempt([&] {
      copies_.fork(stream);
      barriers_.fork(stream);
      team_.engine().use(copies_.get());
      team_.engine().barrier();
    });
  } catch (...) {
    abandon();
    throw;
  }
}

void CopyPipeline::copy(void* to, const void* from, std::size_t bytes) {
  attempt([&] { team_.engine().copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes); });
}

void CopyPipeline::endStep() {
  attempt([&] {
    if (steps_ == ends_.size()) ends_.push_back(gpu::streamEvents().make());
    barriers_.fork(copies_.get());
    team_.engine().use(barriers_.get());
    team_.engine().barrier();
    gpu::streamEvents().record(ends_[steps_++], barriers_.get());
    team_.engine().use(copies_.get());
  });
}

void CopyPipeline::wait(std::size_t step) {
  gpu::streamEvents().wait(stream_, ends_.at(step));
}

void CopyPipeline::abandon() noexcept {
  for (SideStream* const side : {&copies_, &barriers_}) {
    try {
      side->join(stream_);
    } catch (const std::exception&) {  // of a failing device or capture, of which the caller learns anyway
    }
  }
}

}  // namespace mscclpp::kernels
