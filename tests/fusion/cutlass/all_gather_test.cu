// Kernels of CUTLASS whose rows of A come from all ranks, with their scales if they are of fp8.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "gemm_cases.cuh"
#include "mscclpp/fusion/cutlass/all_gather_gemm_kernel.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using cutlass::bfloat16_t;
constexpr CutlassTile pingpongTile = cutlassTiles[2], cooperativeTile = cutlassTiles[4];
constexpr CutlassTile tileOfRowClusters = cutlassTiles[3];  // blocks of a cluster share rows
constexpr CutlassTile tileOfFp8 = cutlassTiles[7];
template <CutlassTile tile>
constexpr bool isScaled = tile.operandBytes == 1;

template <CutlassTile tile>
using Operand = std::conditional_t<isScaled<tile>, cutlass::float_e4m3_t, bfloat16_t>;
template <CutlassTile tile>
using Fusion = std::conditional_t<isScaled<tile>, typename GatheredScaledProduct<tile, bfloat16_t>::Type,
                                  cutlass::epilogue::fusion::LinearCombination<bfloat16_t, float, void, float>>;
template <CutlassTile tile>
using Stock = StockGemm<tile, Operand<tile>, bfloat16_t, Fusion<tile>, gatherSharedBytes>::Type;
template <CutlassTile tile, int ranks = 2>
using Gather = AllGatherGemmKernel<Stock<tile>, ranks, isScaled<tile> ? 1 : 0>;

/// Every rank multiplies the rows of all ranks by its own weights. sendingBlocks: of each rank.
template <CutlassTile tile, std::size_t ranks = 2>
void checkGather(const std::vector<GemmShape>& shapes, const std::array<int, ranks>& sendingBlocks = {},
                 int swizzle = 1) {
  using Kernel = Gather<tile, static_cast<int>(ranks)>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using T = Operand<tile>;
  constexpr int teamSize = static_cast<int>(ranks);
  GpuBackend backend;
  std::size_t maxRows = 0, maxWeights = 0;
  for (const GemmShape& shape : shapes) {
    maxRows = std::max(maxRows, static_cast<std::size_t>(shape.m));
    maxWeights = std::max(maxWeights, static_cast<std::size_t>(shape.n) * static_cast<std::size_t>(shape.k));
    REQUIRE(shape.k == shapes[0].k);
  }
  const auto depth = static_cast<std::size_t>(shapes[0].k);
  auto windows = backend.allocate(teamSize, Kernel::scratchFor(maxRows, maxRows, depth).windowBytes(),
                                  Kernel::Scratch::initialByte);
  auto epochs = backend.allocate(teamSize, epochWords * sizeof(std::uint64_t), 0);
  auto weights = backend.allocate(teamSize, maxWeights * sizeof(T), 0);
  auto ownRows = backend.allocate(teamSize, maxRows * depth * sizeof(T), 0);
  auto ownScales = backend.allocate(teamSize, maxRows * sizeof(float), 0);
  auto weightScales = backend.allocate(teamSize, maxWeights / depth * sizeof(float) + 16, 0);
  for (int rank = 0; rank < teamSize; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Kernel::Scratch::firstEpoch));
  }
  const bool sharesGpu = gpuCount() < teamSize;
  unsigned seed = 1;
  for (int round = 0; round < 2; ++round) {
    for (const GemmShape& shape : shapes) {
      CAPTURE(round);
      CAPTURE(shape.m);
      const auto rows = static_cast<std::size_t>(shape.m), columns = static_cast<std::size_t>(shape.n);
      const auto scratch = Kernel::scratchFor(maxRows, rows, depth);
      auto outputs = backend.allocate(teamSize, (rows * columns + 64) * sizeof(bf16), poisonByte);
      const GemmInputs all = gemmInputs({shape.m, 1, shape.k}, ++seed, isScaled<tile>);
      std::vector<GemmInputs> inputs;
      std::vector<Gemm> gemms(ranks);
      const GpuStreams streams(teamSize);
      for (int rank = 0; rank < teamSize; ++rank) {
        inputs.push_back(gemmInputs({1, shape.n, shape.k}, ++seed, isScaled<tile>));
        inputs.back().a = all.a;
        inputs.back().rowScales = all.rowScales;
        weights.write(rank, convertTo<T>(inputs.back().b));
        weightScales.write(rank, inputs.back().columnScales);
        // This rank's rows and scales, and rubbish in those of the others.
        const std::size_t first = std::min(rows, static_cast<std::size_t>(rank) * scratch.slice);
        const std::size_t end = std::min(rows, first + scratch.slice);
        auto own = convertTo<T>(all.a);
        auto scales = all.rowScales;
        for (std::size_t row = 0; row < rows; ++row) {
          if (row >= first && row < end) continue;
          std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(row * depth), depth, T(256.0f));
          scales[row] = 100.0f;
        }
        // Slices of whole tiles are elsewhere, with rubbish in their place in the matrix.
        const bool isElsewhere = scratch.slice % Kernel::Mainloop::tileRows == 0;
        if (isElsewhere) {
          const auto row = [&](std::size_t i) { return own.begin() + static_cast<std::ptrdiff_t>(i * depth); };
          ownRows.write(rank, std::vector<T>(row(first), row(end)));
          std::fill(row(first), row(end), T(-256.0f));
          const auto scale = [&](std::size_t i) { return scales.begin() + static_cast<std::ptrdiff_t>(i); };
          ownScales.write(rank, std::vector<float>(scale(first), scale(end)));
          std::fill(scale(first), scale(end), -100.0f);
        }
        windows.write(rank, own, scratch.matrixOffset());
        if (isScaled<tile>) windows.write(rank, scales, scratch.scalesOffset(rank, 0, 0));
        setDeviceOfRank(rank);
        typename Gemm::Arguments arguments{};
        arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
        arguments.problem_shape = {shape.m, shape.n, shape.k, 1};
        if (isElsewhere) {
          arguments.mainloop.ptr_A = reinterpret_cast<const T*>(ownRows.window().at(rank));
          arguments.mainloop.dA = {shape.k, cute::Int<1>{}, 0};
          if (isScaled<tile>) arguments.mainloop.scales = reinterpret_cast<const float*>(ownScales.window().at(rank));
        }
        arguments.mainloop.ptr_B = reinterpret_cast<const T*>(weights.window().at(rank));
        arguments.mainloop.dB = {shape.k, cute::Int<1>{}, 0};
        auto& gather = arguments.mainloop.gather;
        gather.team = Team<teamSize>(rank, teamSize);
        gather.window = makeWindow<teamSize>(windows.window().base, teamSize);
        gather.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(rank))};
        gather.scratch = scratch;
        gather.count = rows;
        gather.wait = backend.wait();
        if constexpr (isScaled<tile>) {
          GatheredScaledProduct<tile, bfloat16_t>::setScales(
              arguments.epilogue.thread, Kernel::Mainloop::scalesOf(arguments.mainloop),
              reinterpret_cast<const float*>(weightScales.window().at(rank)));
        } else {
          arguments.epilogue.thread.alpha = 1.0f;
        }
        arguments.epilogue.ptr_D = reinterpret_cast<bfloat16_t*>(outputs.window().at(rank));
        arguments.epilogue.dD = {shape.n, cute::Int<1>{}, 0};
        arguments.hw_info.sm_count = sharesGpu ? 32 : 0;
        arguments.scheduler.max_swizzle_size = swizzle;
        arguments.scheduler.sendingBlocks = sendingBlocks[static_cast<std::size_t>(rank)];
        REQUIRE(Gemm::can_implement(arguments) == cutlass::Status::kSuccess);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].initialize(arguments) == cutlass::Status::kSuccess);
      }
      for (int rank = 0; rank < teamSize; ++rank) {
        setDeviceOfRank(rank);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].run(streams[rank]) == cutlass::Status::kSuccess);
      }
      for (int rank = 0; rank < teamSize; ++rank) {
        setDeviceOfRank(rank);
        checkCuda(cudaStreamSynchronize(streams[rank]), "GEMM");
      }
      if (backend.control()->expired != 0) FAIL(describe(backend.control()->record));
      for (int rank = 0; rank < teamSize; ++rank) {
        CAPTURE(rank);
        CHECK(isGemmSum(shape, {inputs[static_cast<std::size_t>(rank)]}, outputs.template read<bf16>(rank), rows,
                        [](std::size_t row) { return row; }));
      }
    }
  }
}

}  // namespace

TEST_CASE("CUTLASS: all-gather and GEMM") {
  // Slices that are a multiple of a tile and none, a slice that is empty.
  checkGather<pingpongTile>({{512, 256, 192}, {1000, 328, 192}, {257, 128, 192}, {1, 256, 192}, {1700, 1032, 192}});
}
TEST_CASE("CUTLASS: all-gather and GEMM, rows in several parts of columns") {
  // The last one has fewer columns, and no whole step of the inner dimension.
  constexpr int depth = 3 * Gather<pingpongTile>::Mainloop::partColumns + 200;
  checkGather<pingpongTile>({{512, 256, depth}, {300, 328, depth}, {257, 128, depth}, {1100, 168, depth}});
  checkGather<cooperativeTile>({{512, 320, depth}, {300, 328, depth}, {257, 128, depth}, {1100, 168, depth}});
}
TEST_CASE("CUTLASS: all-gather and GEMM, with blocks that only send") {
  constexpr int depth = 3 * Gather<pingpongTile>::Mainloop::partColumns + 200;
  const std::vector<GemmShape> shapes{{512, 256, depth}, {257, 128, depth}, {1, 256, depth}, {1100, 168, depth}};
  checkGather<pingpongTile>(shapes, {4, 4});
  checkGather<cooperativeTile>(shapes, {2, 12});
  checkGather<cooperativeTile>(shapes, {0, 8});
  checkGather<tileOfRowClusters>({{512, 256, depth}, {300, 168, depth}}, {4, 2});
}
TEST_CASE("CUTLASS: all-gather and GEMM of four ranks") {
  constexpr int depth = 2 * Gather<pingpongTile>::Mainloop::partColumns + 200;
  const std::vector<GemmShape> shapes{{512, 256, depth}, {5, 128, depth}, {700, 168, depth}};
  checkGather<cooperativeTile, 4>(shapes);
  checkGather<cooperativeTile, 4>(shapes, {8, 2, 0, 4});
}
TEST_CASE("CUTLASS: all-gather and GEMM that alternates between rows of tiles") {
  constexpr int depth = Gather<cooperativeTile>::Mainloop::partColumns + 64;
  const std::vector<GemmShape> shapes{{1024, 640, depth}, {700, 320, depth}};
  checkGather<cooperativeTile>(shapes, {}, 2);
  checkGather<cooperativeTile>(shapes, {8, 8}, 4);
}
TEST_CASE("CUTLASS: all-gather and GEMM of fp8, with scales") {
  // The last part has fewer columns; slices that are whole tiles and others, one that is empty.
  constexpr int depth = 2 * Gather<tileOfFp8>::Mainloop::partColumns + 400;
  const std::vector<GemmShape> shapes{{512, 320, depth}, {257, 128, depth}, {1, 256, depth}, {700, 168, depth}};
  checkGather<tileOfFp8>(shapes);
  checkGather<tileOfFp8>(shapes, {4, 8});
  checkGather<tileOfFp8, 4>({{512, 320, depth}, {300, 168, depth}}, {8, 4, 4, 8});
}
TEST_CASE("CUTLASS: sending blocks of an all-gather are whole clusters beside others") {
  for (const int sending : {0, 2, 30}) CHECK(acceptsSendingBlocks<Gather<pingpongTile>>(sending, 32));
  for (const int sending : {-2, 3, 32, 34}) CHECK_FALSE(acceptsSendingBlocks<Gather<pingpongTile>>(sending, 32));
}

// On one rank alone. Without a control block, in which the first failure would end the others, each wait of a tile has
// its own limit.
TEST_CASE("CUTLASS: an all-gather whose other rank does not call ends within one time limit") {
  constexpr std::size_t rows = 2048, columns = 256;  // 16 rows of tiles, of which a block has several
  constexpr std::uint64_t limit = 400'000'000;
  constexpr int ranks = 2;
  using Kernel = Gather<pingpongTile, ranks>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  constexpr std::size_t depth = 3 * Kernel::Mainloop::partColumns;
  GpuBackend backend;
  const auto scratch = Kernel::scratchFor(rows, rows, depth);
  auto windows = backend.allocate(ranks, scratch.windowBytes(), Kernel::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto weights = backend.allocate(ranks, columns * depth * sizeof(bf16), 0);
  auto outputs = backend.allocate(ranks, rows * columns * sizeof(bf16), 0);
  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(depth), 1};
  arguments.mainloop.ptr_B = reinterpret_cast<const bfloat16_t*>(weights.window().at(0));
  arguments.mainloop.dB = {static_cast<int>(depth), cute::Int<1>{}, 0};
  auto& gather = arguments.mainloop.gather;
  gather.team = Team<ranks>(0, ranks);
  gather.window = makeWindow<ranks>(windows.window().base, ranks);
  gather.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(0))};
  gather.scratch = scratch;
  gather.count = rows;
  gather.wait = {nullptr, limit};
  arguments.epilogue.thread.alpha = 1.0f;
  arguments.epilogue.ptr_D = reinterpret_cast<bfloat16_t*>(outputs.window().at(0));
  arguments.epilogue.dD = {static_cast<int>(columns), cute::Int<1>{}, 0};
  for (const int sending : {0, 2}) {
    CAPTURE(sending);
    epochs.write(0, std::vector<std::uint64_t>(epochWords, Kernel::Scratch::firstEpoch));
    arguments.scheduler.sendingBlocks = sending;
    arguments.hw_info.sm_count = 2 + sending;
    setDeviceOfRank(0);
    Gemm gemm;
    REQUIRE(gemm.initialize(arguments) == cutlass::Status::kSuccess);
    const auto secondsOfCall = [&] {
      const auto start = std::chrono::steady_clock::now();
      REQUIRE(gemm.run() == cutlass::Status::kSuccess);
      checkCuda(cudaDeviceSynchronize(), "GEMM");
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const double failed = secondsOfCall();
    CHECK(failed > limit / 1e9);
    CHECK(failed < 2 * limit / 1e9);
    CHECK(secondsOfCall() < limit / 2e9);  // calls after a failed one wait for nobody
  }
}
