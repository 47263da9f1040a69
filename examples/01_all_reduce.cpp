// 01: an all-reduce over CPU ranks, one process each. On GPUs the same calls take DeviceType::GPU, device pointers, and
// a stream; see bench/perf/ for a program that does either.
#include <memory>
#include <vector>

#include "example.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;

namespace {

void reduce(ProcessGroup& group) {
  // The bootstrap finds the other ranks; the communicator maps their memory; Collectives owns scratch in it.
  const auto bootstrap = group.connect();
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(communicator, DeviceType::CPU);

  for (const std::size_t count : {1, 1000, 300'007}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<float>(i % 10 + static_cast<std::size_t>(group.rank()));

    collectives.allReduce(data.data(), data.data(), count, DataType::FLOAT32, ReduceOp::SUM);

    // Rank r contributed i % 10 + r.
    const auto n = static_cast<std::size_t>(group.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected = static_cast<float>(n * (i % 10) + n * (n - 1) / 2);
      example::require(data[i] == expected, "element " + std::to_string(i) + " is " + std::to_string(data[i]) +
                                                " instead of " + std::to_string(expected));
    }
    if (group.rank() == 0) {
      std::printf("%zu floats over %d ranks by %s: right\n", count, group.size(),
                  collectives.selectedAlgorithm({.count = count}).c_str());
    }
  }
  bootstrap->barrier();  // no rank frees its scratch while others still read it
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, reduce);
}
