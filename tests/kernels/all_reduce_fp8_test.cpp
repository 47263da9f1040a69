// The compiled all-reduce that sends fp8 on CPU ranks, one per thread: its arguments. Results: tests/fusion.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <memory>

#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

void onRanks(int ranks, const std::function<void(Collectives&)>& body) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    body(collectives);
    bootstrap->barrier();
  });
}

}  // namespace

TEST_CASE("wrong arguments, after which the object is usable") {
  onRanks(2, [](Collectives& collectives) {
    std::array<float, 8> input{1, 2, 4, 8};
    std::array<float, 8> output{};
    const auto expect = [&](const char* part, const void* from, void* to, std::size_t count,
                            DataType type = DataType::FLOAT32) {
      expectInvalidUsage("all_reduce_fp8: ", [&] { collectives.allReduceFp8(from, to, count, type); });
      expectInvalidUsage(part, [&] { collectives.allReduceFp8(from, to, count, type); });
    };
    const auto* const oddInput = reinterpret_cast<const char*>(input.data()) + 1;
    auto* const oddOutput = reinterpret_cast<char*>(output.data()) + 2;
    expect("double is not supported", input.data(), output.data(), 4, DataType::FLOAT64);
    expect("a negative number?", input.data(), output.data(), std::size_t{1} << 62);
    expect("a negative number?", input.data(), output.data(), static_cast<std::size_t>(-1));
    expect("input is null", nullptr, output.data(), 4);
    expect("output is null", input.data(), nullptr, 4);
    expect("input must be aligned to its elements of 4 bytes", oddInput, output.data(), 4);
    expect("output must be aligned to its elements of 4 bytes", input.data(), oddOutput, 4);
    expect("input and output overlap; in place, they are the same", input.data(), input.data() + 1, 4);
    expect("input and output overlap", input.data() + 3, input.data(), 4);
    collectives.allReduceFp8(nullptr, nullptr, 0, DataType::FLOAT32);
    collectives.allReduceFp8(input.data(), input.data() + 4, 4, DataType::FLOAT32);
    collectives.allReduceFp8(input.data(), input.data(), 4, DataType::FLOAT32);
    CHECK(input[3] == input[7]);
    CHECK(input[3] == 16);
  });
}

TEST_CASE("the memory of an object includes the scratch of fp8 and of RMSNorm") {
  onRanks(2, [](Collectives& collectives) {
    alignas(16) std::array<float, 8> data{};
    const std::size_t before = collectives.memoryBytes();
    collectives.allReduceFp8(data.data(), data.data(), data.size(), DataType::FLOAT32);
    const std::size_t withFp8 = collectives.memoryBytes();
    // Two ranks send parts of 64 Ki elements, of a byte each.
    CHECK(withFp8 >= before + 64 * 1024);
    collectives.allReduceFp8(data.data(), data.data(), data.size(), DataType::FLOAT32);
    CHECK(collectives.memoryBytes() == withFp8);
    collectives.allReduceRmsNorm(
        {.input = data.data(), .weight = data.data(), .normalised = data.data(), .rows = 1, .hidden = data.size()});
    CHECK(collectives.memoryBytes() >= withFp8 + 256 * 1024);
  });
}
