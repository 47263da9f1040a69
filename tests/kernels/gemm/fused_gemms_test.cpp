// Fused GEMMs for calls of any size, on CPU ranks, one per thread.
#include "mscclpp/kernels/fused_gemms.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr std::size_t mostElements = 100 * 100;

/// Arrays of ones, for calls of up to `mostElements` elements.
struct Ones {
  std::vector<bf16> operand = std::vector<bf16>(mostElements, narrow<bf16>(1.0f));
  std::vector<bf16> output = std::vector<bf16>(mostElements);

  FusedGemmCall call(std::size_t rows, std::size_t width, std::size_t depth) {
    return {.input = operand.data(),
            .weight = operand.data(),
            .output = output.data(),
            .rows = rows,
            .width = width,
            .depth = depth};
  }
};

}  // namespace

TEST_CASE("an object for each power of two of rows, and of the size that scratch does not depend on") {
  runAsThreads(2, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    FusedGemms gemms(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    Ones ones;
    const auto multiply = [&](std::size_t rows, std::size_t width, std::size_t depth) {
      std::fill(ones.output.begin(), ones.output.end(), narrow<bf16>(-1.0f));
      gemms.run(GemmCollective::AllReduce, ones.call(rows, width, depth));
      const auto end = ones.output.begin() + static_cast<std::ptrdiff_t>(rows * width);
      const float sum = 2.0f * static_cast<float>(depth);
      CHECK(std::all_of(ones.output.begin(), end, [&](bf16 value) { return widen<bf16>(value) == sum; }));
      CHECK(widen<bf16>(*end) == -1.0f);
    };
    const auto isMade = [&](GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth) {
      return gemms.form(collective, ones.call(rows, width, depth)) == GemmForm::Fused;
    };
    const auto reduce = GemmCollective::AllReduce;
    CHECK_FALSE(isMade(reduce, 1, 8, 16));
    CHECK(gemms.form(reduce, ones.call(0, 8, 16)) == GemmForm::Fused);
    multiply(3, 8, 16);
    CHECK(isMade(reduce, 1, 8, 16));
    CHECK(isMade(reduce, 64, 8, 9));  // the fewest rows, and the same power of two of the depth
    CHECK_FALSE(isMade(reduce, 65, 8, 16));
    CHECK_FALSE(isMade(reduce, 1, 9, 16));
    CHECK_FALSE(isMade(reduce, 1, 8, 17));
    CHECK_FALSE(isMade(GemmCollective::ReduceScatter, 1, 8, 16));
    RmsNormCall norm;
    FusedGemmCall withNorm = ones.call(1, 16, 16);
    withNorm.norm = &norm;
    multiply(1, 16, 16);
    CHECK_FALSE(gemms.form(reduce, withNorm));
    CHECK_FALSE(gemms.form(reduce, ones.call(1, 8, 16), DataType::FLOAT8_E4M3FN));
    multiply(65, 8, 17);
    CHECK(isMade(reduce, 65, 8, 32));
    CHECK(isMade(reduce, 128, 8, 17));
    CHECK(isMade(reduce, 1, 8, 17));
    CHECK_FALSE(isMade(reduce, 129, 8, 17));
    // Ranks with other sizes that need the same object.
    multiply(2, 8, 32);
    const auto gather = GemmCollective::AllGather;
    const auto width = static_cast<std::size_t>(30 + bootstrap->getRank());
    gemms.run(gather, ones.call(4, width, 8));
    CHECK(widen<bf16>(ones.output[4 * width - 1]) == 8.0f);
    CHECK(isMade(gather, 4, 17, 8));
    CHECK_FALSE(isMade(gather, 4, 33, 8));
    gemms.check();
    bootstrap->barrier();
  });
}

TEST_CASE("sizes that no layer has are refused on all ranks") {
  runAsThreads(2, [](const std::shared_ptr<Bootstrap>& bootstrap) {
    FusedGemms gemms(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    Ones ones;
    constexpr std::size_t huge = ~std::size_t{0};
    expectInvalidUsage("above 0", [&] { gemms.run(GemmCollective::AllReduce, ones.call(1, 0, 8)); });
    expectInvalidUsage("at most", [&] { gemms.run(GemmCollective::AllReduce, ones.call(huge, 8, 8)); });
    expectInvalidUsage("at most", [&] { gemms.run(GemmCollective::AllReduce, ones.call(8, huge, 8)); });
    expectInvalidUsage("at most", [&] { gemms.run(GemmCollective::AllReduce, ones.call(8, 8, huge)); });
    gemms.run(GemmCollective::AllReduce, {});  // no rows
    bootstrap->barrier();
  });
  expectInvalidUsage("without a communicator", [] { FusedGemms(nullptr, DeviceType::CPU); });
}
