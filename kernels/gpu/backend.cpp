// The GPU backend of the compiled collectives.
#include "kernels/backend.hpp"

#include <cuda_runtime.h>

#include "clock_sync.hpp"
#include "kernels/all_reduce_algorithms.hpp"
#include "line_atomicity.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::kernels {

const Backend& gpuBackend() {
  static const Backend backend{
      [](std::size_t bytes) { return std::static_pointer_cast<void>(mscclpp::detail::gpuCallocShared<char>(bytes)); },
      [](void* address, int byte, std::size_t bytes) { gpuMemset(address, byte, bytes); },
      [](void* address, const void* from, std::size_t bytes) {
        gpuMemcpy<char>(static_cast<char*>(address), static_cast<const char*>(from), bytes, cudaMemcpyHostToDevice);
      },
      gpu::areLineStoresAtomic,
      [](std::size_t algorithm, DataType type, ReduceOp op, int ranks) {
        return visit(
            type, [&](auto tag) { return gpu::findAllReduce<typename decltype(tag)::Type>(algorithm, op, ranks); },
            [] { return AllReduceFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, ReduceOp op, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (hasTracedVariant<T, Sum>) return gpu::findTracedAllReduce<T>(algorithm, op, ranks);
              return AllReduceFunction{nullptr};
            },
            [] { return AllReduceFunction{nullptr}; });
      },
      gpu::launchClockSync};
  return backend;
}

}  // namespace mscclpp::kernels
