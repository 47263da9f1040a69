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

TEST_CASE("handles in memory of other dispatches") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    checkOtherHandles(communicator, cpuMemory);
  });
}

TEST_CASE("an output that is too small is named on all ranks") {
  runAsThreads(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    checkSmallMoeOutput(communicator, cpuMemory);
  });
}

TEST_CASE("the memory that a buffer takes") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    const moe::BufferConfig config{
        .maxTokens = 64, .topk = 8, .experts = 16, .hidden = 7168, .format = moe::RowFormat::Fp8};
    const moe::Buffer small(communicator, DeviceType::CPU, config);
    CHECK(small.rowBytes() == 7168 + 56 * 4);
    CHECK(small.defaultCapacity() == 64 * 8 * 2);  // of both ranks: every routing
    CHECK(small.defaultCapacity() == small.largestCapacity());
    // Slots for a row of each token, in steps of 2 KB with 5 packs of choices each and 1 of scales; twice for bf16.
    const std::size_t slots = 2 * 64 * ((448 + 4 * 9 + 7) / 8 * 8 + 896) * 16;
    CHECK(small.scratchBytes() >= slots);
    CHECK(small.scratchBytes() < slots + slots / 4);
  });
}

TEST_CASE("the rows that are proposed for an output") {
  moe::BufferConfig config{.maxTokens = 20, .topk = 8, .experts = 64, .hidden = 1 << 19, .alignment = 3};  // 1 MiB
  CHECK(moe::rowBytes(config) == 1 << 20);
  CHECK(moe::defaultCapacity(config, 1) == 20 * 8 + 64 * 2);       // every routing
  CHECK(moe::defaultCapacity(config, 8) == 2 * (20 * 8 + 8 * 2));  // twice an even one: more than 256 MiB
  config.maxTokens = 10;
  CHECK(moe::defaultCapacity(config, 8) == 256);  // 256 MiB: more than twice an even one
  config.format = moe::RowFormat::Fp8;
  CHECK(moe::rowBytes(config) == (1 << 19) + (1 << 12) * 4);
}
