// The CPU backend of the compiled collectives.
#include "kernels/backend.hpp"

#include <cstring>
#include <vector>

#include "host/memory/host_allocation.hpp"
#include "kernels/algorithms.hpp"
#include "kernels/all_reduce_fp8.hpp"
#include "kernels/rms_norm.hpp"

namespace mscclpp::kernels {

const Backend& cpuBackend() {
  static const Backend backend{
      [] { return std::string(); },
      [] { return 0; },
      [](CUstream_st*) { return false; },
      [] {},
      [](MemoryRange range) {
        const auto allocation = mscclpp::detail::HostAllocation::find(range.begin, range.bytes);
        return allocation == nullptr ? range : MemoryRange{allocation->base(), allocation->bytes()};
      },
      [](std::size_t bytes) {
        auto memory = std::make_shared<std::vector<std::uint64_t>>((bytes + 7) / 8);
        return std::shared_ptr<void>(memory, memory->data());
      },
      [](void* address, int byte, std::size_t bytes) { std::memset(address, byte, bytes); },
      [](void* address, const void* from, std::size_t bytes) { std::memcpy(address, from, bytes); },
      [] { return true; },
      [](Bootstrap&) { return false; },
      [](std::size_t algorithm, DataType type, int ranks) {
        if (!hasReduction(algorithmTable[algorithm].collective)) return cpu::findMover(algorithm, ranks);
        return visit(
            type, [&](auto tag) { return cpu::findReduction<typename decltype(tag)::Type>(algorithm, ranks); },
            [] { return KernelFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (hasTracedKernels<T>()) return cpu::findTracedReduction<T>(algorithm, ranks);
              return KernelFunction{nullptr};
            },
            [] { return KernelFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (isCommonType<T>) return cpu::findJoinedReduction<T>(algorithm, ranks);
              return KernelFunction{nullptr};
            },
            [] { return KernelFunction{nullptr}; });
      },
      cpu::exchange,
      [](DataType type, Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
        if (type == DataType::FLOAT16) return cpu::makeRmsNorm<f16>(communicator, monitor);
        if (type == DataType::BFLOAT16) return cpu::makeRmsNorm<bf16>(communicator, monitor);
        return cpu::makeRmsNorm<float>(communicator, monitor);
      },
      [](DataType type, Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
        if (type == DataType::FLOAT16) return cpu::makeAllReduceFp8<f16>(communicator, monitor);
        if (type == DataType::BFLOAT16) return cpu::makeAllReduceFp8<bf16>(communicator, monitor);
        return cpu::makeAllReduceFp8<float>(communicator, monitor);
      },
      nullptr,
      [] { return std::shared_ptr<GpuBudget>(); }};
  return backend;
}

}  // namespace mscclpp::kernels
