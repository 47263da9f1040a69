// The compiled dispatches and combines on CPU ranks, one per thread.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "moe_buffer_cases.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/routing_layout.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

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

TEST_CASE("rows of bf16 of an odd number of packs") {
  runAsThreads(2, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    for (const std::uint32_t hidden : {8u, 264u, 1032u, 5128u}) {  // of one step, and of steps and one pack more
      CAPTURE(hidden);
      moe::BufferConfig config = moeConfig(2, moe::RowFormat::Bf16);
      config.hidden = hidden;
      checkMoeBuffer(communicator, cpuMemory, config);
    }
  });
}

TEST_CASE("ranks may differ in numbers of blocks and bulk copies") {
  runAsThreads(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    moe::BufferConfig config = moeConfig(3, moe::RowFormat::Bf16);
    const int rank = bootstrap->getRank();
    config.blocks += rank;
    config.lowLatencyBlocks += 2 * rank;
    config.sendingBlocks = rank;
    config.combineSendingBlocks = 2 - rank;
    config.bulkCopies = rank == 1;
    checkMoeBuffer(communicator, cpuMemory, config);
  });
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

TEST_CASE("the memory for a buffer is that which it takes") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    for (const auto format : {moe::RowFormat::Bf16, moe::RowFormat::Fp8}) {
      for (const std::uint32_t tokens : {0u, 30u}) {
        for (const std::uint32_t few : {0u, 9u, 40u}) {
          if (tokens + few == 0) continue;
          moe::BufferConfig config = moeConfig(2, format);
          config.maxTokens = tokens;
          config.maxLowLatencyTokens = few;
          const moe::Buffer buffer(communicator, DeviceType::CPU, config);
          const moe::BufferMemory memory = moe::memoryFor(config, 2);
          // On CPU ranks no words of a block are in shared memory. Each has one block.
          const moe::Dimensions many{tokens, 3, 8, 2}, less{few, 3, 8, 2};
          const std::size_t words = std::max({moe::routingLayoutWords(many), tokens > 0 ? moe::rowTableWords(many) : 0,
                                              few > 0 ? moe::rowTableWords(less) + moe::blockRoutingWords(less) : 0});
          CHECK(buffer.scratchBytes() ==
                memory.dispatches + memory.combines + memory.workspace + roundUp(words * sizeof(std::uint32_t), 128));
          CHECK(buffer.handleBytes() == memory.handle);
          CHECK(memory.output == (tokens > 0 ? buffer.defaultCapacity() * buffer.rowBytes() : 0));
          CHECK(memory.lowLatencyOutput == buffer.lowLatencyCapacity() * buffer.rowBytes());
        }
      }
    }
    // Neither counts nor indices of tokens for low-latency calls alone.
    moe::BufferConfig config = moeConfig(2, moe::RowFormat::Bf16);
    const std::size_t both = moe::memoryFor(config, 2).workspace;
    config.maxTokens = 0;
    CHECK(moe::memoryFor(config, 2).workspace ==
          both - roundUp(8 * 4, 128) - roundUp(2 * 4, 128) - roundUp(30 * 3 * 4, 128));
  });
}

TEST_CASE("the memory for a buffer that there cannot be") {
  const auto expect = [](const char* part, int ranks, const std::function<void(moe::BufferConfig&)>& change) {
    moe::BufferConfig config{.maxTokens = 4096, .topk = 8, .experts = 256, .hidden = 7168};
    change(config);
    expectInvalidUsage(part, [&] { moe::memoryFor(config, ranks); });
  };
  expect("2^31 rows or more", 64, [](moe::BufferConfig& config) {
    config.experts = 64 * 65535;
    config.alignment = 65536;
  });
  expect("2^31 rows or more", 64, [](moe::BufferConfig& config) {
    config.experts = 64 * 65535;
    config.maxTokens = 0;
    config.maxLowLatencyTokens = 1024;
  });
  expect("2^32 packs", 8, [](moe::BufferConfig& config) {
    config.maxTokens = 65535;
    config.hidden = 1 << 20;
  });
  expect("number of ranks is 65", 65, [](moe::BufferConfig& config) { config.experts = 65; });
  expect("number of ranks is 0", 0, [](moe::BufferConfig&) {});
  expect("alignment is 0", 8, [](moe::BufferConfig& config) { config.alignment = 0; });
}

/// A number with a comma after the thousands.
std::string digits(std::size_t number) {
  const std::string text = std::to_string(number);
  return text.size() < 4 ? text : text.substr(0, text.size() - 3) + "," + text.substr(text.size() - 3);
}
/// A row of the table in docs/moe.md: 256 experts, top 8, in MiB rounded up.
std::string memoryRow(int ranks, moe::Form form, std::uint32_t tokens, std::uint32_t hidden, moe::RowFormat format) {
  const bool isLowLatency = form == moe::Form::LowLatency;
  const moe::BufferConfig config{.maxTokens = isLowLatency ? 0 : tokens,
                                 .maxLowLatencyTokens = isLowLatency ? tokens : 0,
                                 .topk = 8,
                                 .experts = 256,
                                 .hidden = hidden,
                                 .format = format};
  const moe::BufferMemory memory = moe::memoryFor(config, ranks);
  CHECK(memory.workspace < std::size_t{1} << 20);
  CHECK_THROWS_AS(moe::memoryFor(config, 0), Error);
  CHECK_THROWS_AS(moe::memoryFor(config, 3), Error);  // experts are equally many on all ranks
  std::string row = "| " + std::to_string(ranks) + " | " + (isLowLatency ? "low latency" : "bandwidth") + " | " +
                    digits(tokens) + " | " + digits(hidden) + " | " +
                    (format == moe::RowFormat::Bf16 ? "bf16" : "fp8") + " |";
  for (const std::size_t bytes :
       {memory.dispatches, memory.combines, memory.handle, isLowLatency ? memory.lowLatencyOutput : memory.output}) {
    row += " " + digits(ceilDivide(bytes, std::size_t{1} << 20)) + " |";
  }
  return row;
}

TEST_CASE("the memory that the documentation states") {
  const char* const path = std::getenv("MSCCLPP_MOE_DOCUMENT");
  REQUIRE_MESSAGE(path != nullptr, "set MSCCLPP_MOE_DOCUMENT to the path of docs/moe.md, as meson test does");
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  REQUIRE_FALSE(text.empty());
  std::size_t rows = 0;
  for (const int ranks : {2, 8}) {
    for (const std::uint32_t hidden : {4096u, 7168u}) {
      for (const auto format : {moe::RowFormat::Fp8, moe::RowFormat::Bf16}) {
        for (const std::uint32_t tokens : {128u, 4096u}) {
          const auto form = tokens == 128 ? moe::Form::LowLatency : moe::Form::Bandwidth;
          const std::string row = memoryRow(ranks, form, tokens, hidden, format);
          CAPTURE(row);
          CHECK(text.find(row + "\n") != std::string::npos);
          ++rows;
        }
      }
    }
  }
  std::size_t stated = 0;  // no others
  for (const char* const form : {" | low latency | ", " | bandwidth | "}) {
    for (std::size_t at = text.find(form); at != std::string::npos; at = text.find(form, at + 1)) ++stated;
  }
  CHECK(stated == rows + 1);  // and the head of the table of the forms
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
