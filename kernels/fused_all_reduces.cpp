#include "fused_all_reduces.hpp"

#include <algorithm>
#include <string>

#include "algorithms.hpp"
#include "host/communicator/group_setup.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

template <class Kernels, class Make>
const Kernels& FusedAllReduces::kernelsFor(std::unique_ptr<Kernels>& kernels, const char* name, CUstream_st* stream,
                                           const Make& make) {
  if (kernels == nullptr) {
    if (backend_.isCapturing(stream)) {
      throw Error(std::string(name) +
                      ": the first call for an element type allocates scratch, which a graph cannot: make a call "
                      "before the capture",
                  ErrorCode::InvalidUsage);
    }
    const mscclpp::detail::GroupSetup setup(communicator_);
    kernels = make();
  }
  return *kernels;
}

void FusedAllReduces::run(const RmsNormCall& call) {
  const char* const name = "all_reduce_rms_norm";
  if (!requireValid(call)) return;
  const RmsNormKernels& kernels = kernelsFor(rmsNorm_[call.type], name, call.stream,
                                             [&] { return backend_.makeRmsNorm(call.type, communicator_, monitor_); });
  const std::size_t rowBytes = call.hidden * sizeOf(call.type);
  // An even number: the quantised rows, of half as many bytes as the others, begin at multiples of 16 too.
  const std::size_t rowsAtOnce = kernels.capacity() / rowBytes / 2 * 2;
  for (std::size_t first = 0; first < call.rows; first += rowsAtOnce) {
    const auto from = [&](const void* array) {
      return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + first * rowBytes;
    };
    const auto into = [&](void* array) {
      return array == nullptr ? nullptr : static_cast<std::byte*>(array) + first * rowBytes;
    };
    RmsNormCall some = call;
    some.input = from(call.input);
    some.residual = from(call.residual);
    some.newResidual = into(call.newResidual);
    some.normalised = into(call.normalised);
    if (call.quantised != nullptr) some.quantised = static_cast<std::byte*>(call.quantised) + first * call.hidden;
    if (call.scales != nullptr) some.scales = call.scales + first * call.scalesOfRow();
    some.rows = std::min(call.rows - first, rowsAtOnce);
    launcher_.enqueue(name, fallbackOf(CollectiveType::AllReduce), some.rows * rowBytes, call.stream,
                      [&] { return kernels.run(some, launcher_.maxBlocks(), launcher_.start()); });
  }
}

void FusedAllReduces::run(const Fp8Call& call, DataType type) {
  const char* const name = "all_reduce_fp8";
  if (!requireValid(call, type)) return;
  const Fp8Kernels& kernels = kernelsFor(fp8_[type], name, call.stream,
                                         [&] { return backend_.makeAllReduceFp8(type, communicator_, monitor_); });
  const std::size_t size = sizeOf(type);
  for (std::size_t first = 0; first < call.count; first += kernels.capacity()) {
    const Fp8Call some{static_cast<const std::byte*>(call.input) + first * size,
                       static_cast<std::byte*>(call.output) + first * size,
                       std::min(call.count - first, kernels.capacity()), call.stream};
    launcher_.enqueue(name, fallbackOf(CollectiveType::AllReduce), some.count * size, call.stream,
                      [&] { return kernels.run(some, launcher_.maxBlocks(), launcher_.start()); });
  }
}

std::size_t FusedAllReduces::memoryBytes() const {
  std::size_t bytes = 0;
  const auto add = [&](const auto& kernelsOfTypes) {
    // Null where the scratch could not be allocated.
    for (const auto& [type, kernels] : kernelsOfTypes) bytes += kernels == nullptr ? 0 : kernels->memoryBytes();
  };
  add(rmsNorm_);
  add(fp8_);
  return bytes;
}

}  // namespace mscclpp::kernels
