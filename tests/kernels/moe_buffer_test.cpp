// The compiled dispatches and combines on CPU ranks, one per thread.
#include "moe_buffer_cases.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

const MoeMemory cpuMemory{DeviceType::CPU,
                          [](std::size_t bytes) {
                            return std::shared_ptr<void>(
                                ::operator new (bytes, std::align_val_t{16}),
                                [](void* memory) { ::operator delete (memory, std::align_val_t{16}); });
                          },
                          [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }, [] {}};

}  // namespace

TEST_CASE("a buffer of every format, for several numbers of ranks") {
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      Communicator communicator(bootstrap);
      for (const auto format : {moe::RowFormat::Bf16, moe::RowFormat::Fp8, moe::RowFormat::QuantiseBf16}) {
        checkMoeBuffer(communicator, cpuMemory, moeConfig(ranks, format));
      }
    });
  }
}

TEST_CASE("wrong configurations and arguments of a buffer") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    checkMoeMisuse(communicator, cpuMemory);
  });
}
