// The CPU backend of the compiled collectives.
#include "kernels/backend.hpp"

#include <cstring>
#include <vector>

#include "kernels/all_reduce_algorithms.hpp"

namespace mscclpp::kernels {

const Backend& cpuBackend() {
  static const Backend backend{
      [](std::size_t bytes) {
        auto memory = std::make_shared<std::vector<std::uint64_t>>((bytes + 7) / 8);
        return std::shared_ptr<void>(memory, memory->data());
      },
      [](void* address, int byte, std::size_t bytes) { std::memset(address, byte, bytes); },
      [](void* address, const void* from, std::size_t bytes) { std::memcpy(address, from, bytes); },
      [](Bootstrap&) { return false; },
      [](std::size_t algorithm, DataType type, ReduceOp op, int ranks) {
        return visit(
            type, [&](auto tag) { return cpu::findAllReduce<typename decltype(tag)::Type>(algorithm, op, ranks); },
            [] { return AllReduceFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, ReduceOp op, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (hasTracedVariant<T, Sum>) return cpu::findTracedAllReduce<T>(algorithm, op, ranks);
              return AllReduceFunction{nullptr};
            },
            [] { return AllReduceFunction{nullptr}; });
      },
      nullptr};
  return backend;
}

}  // namespace mscclpp::kernels
