// The CPU as a place where collectives run.
#include "../backend.hpp"

#include <cstring>
#include <vector>

namespace mscclpp::kernels {

const Backend& cpuBackend() {
  static const Backend backend{
      [](std::size_t bytes) {
        auto memory = std::make_shared<std::vector<std::uint64_t>>((bytes + 7) / 8);
        return std::shared_ptr<void>(memory, memory->data());
      },
      [](void* address, int byte, std::size_t bytes) { std::memset(address, byte, bytes); },
      [](void* address, const void* from, std::size_t bytes) { std::memcpy(address, from, bytes); },
      [](int /*error*/) { return "no CPU variant fails"; },
      [](Bootstrap&) { return false; },
      [](std::size_t algorithm, DataType type, ReduceOp op, int ranks) {
        return visit(
            type, [&](auto tag) { return cpu::findAllReduce<typename decltype(tag)::Type>(algorithm, op, ranks); },
            [] { return AllReduceFunction{nullptr}; });
      }};
  return backend;
}

}  // namespace mscclpp::kernels
