#include "overlapped_gather.hpp"

#include <utility>

#include "mscclpp/basic/element.hpp"

namespace mscclpp::kernels {

OverlappedGather::OverlappedGather(Communicator& communicator, std::shared_ptr<const Cublas> cublas,
                                   std::size_t maxRows, std::size_t depth)
    : rank_(static_cast<std::size_t>(communicator.bootstrap()->getRank())),
      ranks_(static_cast<std::size_t>(communicator.bootstrap()->getNranks())),
      cublas_(std::move(cublas)),
      gathered_(communicator, maxRows * depth * sizeof(bf16), DeviceType::GPU),
      mover_(communicator, DeviceType::GPU) {}

void OverlappedGather::run(const FusedGemmCall& call) {
  const std::size_t own = call.rows / ranks_, first = rank_ * own, last = first + own;
  const auto multiply = [&](const void* input, std::size_t begin, std::size_t end) {
    if (begin == end) return;
    cublas_->multiply(input, call.weight, static_cast<bf16*>(call.output) + begin * call.width, end - begin, call.width,
                      call.depth, call.stream);
  };
  mover_.check();
  copies_.fork(call.stream);
  try {
    mover_.allGather(call.input, gathered_.window(), own * call.depth * sizeof(bf16), copies_.get());
    multiply(call.input, first, last);
  } catch (...) {
    // A capture must not end with a stream that has left it, nor the caller change what is being copied.
    copies_.join(call.stream);
    throw;
  }
  copies_.join(call.stream);
  const auto* const gathered = static_cast<const bf16*>(gathered_.local());
  multiply(gathered, 0, first);
  multiply(gathered + last * call.depth, last, call.rows);
}

}  // namespace mscclpp::kernels
