// Wide tiles of fp8 in a kernel of CUTLASS by itself: sums that are added up in fp32 after each step, or never.
#include <cmath>
#include <random>

#include "gemm_cases.cuh"
#include "mscclpp/fusion/cutlass/wide_fp8_mainloop.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr CutlassTile wideTile = cutlassTiles[8];
static_assert(wideTile.operandBytes == 1 && wideTile.columns == 256);
using Kernel = StockGemm<wideTile, cutlass::float_e4m3_t, cutlass::bfloat16_t>::Type;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
constexpr std::uint32_t afterEachStep = 4, never = 1u << 30;  // instructions

/// The product of a (m x k) and the transpose of b (n x k).
std::vector<bf16> multiply(const GemmShape& shape, const GemmInputs& inputs, std::uint32_t promotionInterval) {
  GpuBackend backend;
  const std::size_t count = static_cast<std::size_t>(shape.m) * static_cast<std::size_t>(shape.n);
  auto a = backend.allocate(1, inputs.a.size(), 0);
  auto b = backend.allocate(1, inputs.b.size(), 0);
  auto output = backend.allocate(1, count * sizeof(bf16), poisonByte);
  a.write(0, convertTo<cutlass::float_e4m3_t>(inputs.a));
  b.write(0, convertTo<cutlass::float_e4m3_t>(inputs.b));
  setDeviceOfRank(0);
  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {shape.m, shape.n, shape.k, 1};
  arguments.mainloop.ptr_A = reinterpret_cast<const cutlass::float_e4m3_t*>(a.window().at(0));
  arguments.mainloop.dA = {shape.k, cute::Int<1>{}, 0};
  arguments.mainloop.ptr_B = reinterpret_cast<const cutlass::float_e4m3_t*>(b.window().at(0));
  arguments.mainloop.dB = {shape.k, cute::Int<1>{}, 0};
  arguments.mainloop.mma_promotion_interval = promotionInterval;
  arguments.epilogue.thread.alpha = 1.0f;
  arguments.epilogue.ptr_D = reinterpret_cast<cutlass::bfloat16_t*>(output.window().at(0));
  arguments.epilogue.dD = {shape.n, cute::Int<1>{}, 0};
  Gemm gemm;
  REQUIRE(Gemm::can_implement(arguments) == cutlass::Status::kSuccess);
  REQUIRE(gemm.initialize(arguments) == cutlass::Status::kSuccess);
  REQUIRE(gemm.run() == cutlass::Status::kSuccess);
  checkCuda(cudaDeviceSynchronize(), "GEMM");
  return output.read<bf16>(0);
}

/// The largest relative error.
double largestError(const GemmShape& shape, const GemmInputs& inputs, const std::vector<bf16>& output) {
  const auto n = static_cast<std::size_t>(shape.n), depth = static_cast<std::size_t>(shape.k);
  double largest = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      sum += double{inputs.a[i / n * depth + k]} * inputs.b[i % n * depth + k];
    }
    largest = std::fmax(largest, std::fabs(widen<bf16>(output[i]) - sum) / sum);
  }
  return largest;
}

}  // namespace

TEST_CASE("CUTLASS: wide tiles of fp8") {
  // Less than a step, one and several steps, tiles at the edges, more tiles than multiprocessors.
  unsigned seed = 1;
  for (const GemmShape& shape :
       std::vector<GemmShape>{{128, 256, 16}, {256, 512, 128}, {300, 264, 144}, {200, 520, 1040}, {2000, 4104, 144}}) {
    CAPTURE(shape.m);
    const GemmInputs inputs = gemmInputs(shape, seed += 2, false);
    const auto exact = multiply(shape, inputs, afterEachStep), fast = multiply(shape, inputs, never);
    for (const auto& product : {exact, fast}) {
      CHECK(
          isGemmSum(shape, {inputs}, product, static_cast<std::size_t>(shape.m), [](std::size_t row) { return row; }));
    }
    // Where there are more steps than two, sums are added up after each all the same.
    if (shape.k > 256) CHECK(firstDifference(multiply(shape, inputs, 2 * afterEachStep), exact) == -1);
  }
}

// Tensor cores cut bits off the terms of large sums: they show where nothing cancels out.
TEST_CASE("CUTLASS: wide tiles of fp8, sums of one sign") {
  const GemmShape shape{128, 256, 8192};
  GemmInputs inputs = gemmInputs(shape, 3, false);
  std::mt19937 random(4);
  for (auto* const values : {&inputs.a, &inputs.b}) {
    for (float& value : *values) value = static_cast<float>(random() % 8 + 8) / 16.0f;  // exact in e4m3
  }
  const double exact = largestError(shape, inputs, multiply(shape, inputs, afterEachStep));
  const double fast = largestError(shape, inputs, multiply(shape, inputs, never));
  MESSAGE("relative errors: " << exact << " if sums are added up after each step, " << fast << " if never");
  CHECK(exact < 1.0 / 256 + 1.0 / 512);
  CHECK(fast > 2 * exact);
  CHECK(fast < 0.25);
}
