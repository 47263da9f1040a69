// Kernels of CUTLASS in bfloat16 whose rows of A come from all ranks.
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
template <CutlassTile tile>
using Stock =
    StockGemm<tile, bfloat16_t, bfloat16_t,
              cutlass::epilogue::fusion::LinearCombination<bfloat16_t, float, void, float>, gatherSharedBytes>::Type;

constexpr int ranks = 2;
template <CutlassTile tile>
using Gather = AllGatherGemmKernel<Stock<tile>, ranks>;

/// Every rank multiplies the rows of all ranks by its own weights. sendingBlocks: of each rank.
template <CutlassTile tile>
void checkGather(const std::vector<GemmShape>& shapes, const std::array<int, ranks>& sendingBlocks = {}) {
  using Kernel = Gather<tile>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  GpuBackend backend;
  std::size_t maxRows = 0, maxOutput = 0, maxWeights = 0;
  for (const GemmShape& shape : shapes) {
    maxRows = std::max(maxRows, static_cast<std::size_t>(shape.m));
    maxOutput = std::max(maxOutput, static_cast<std::size_t>(shape.m) * static_cast<std::size_t>(shape.n));
    maxWeights = std::max(maxWeights, static_cast<std::size_t>(shape.n) * static_cast<std::size_t>(shape.k));
    REQUIRE(shape.k == shapes[0].k);
  }
  const auto depth = static_cast<std::size_t>(shapes[0].k);
  auto windows =
      backend.allocate(ranks, Kernel::scratchFor(maxRows, maxRows, depth).windowBytes(), Kernel::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto weights = backend.allocate(ranks, maxWeights * sizeof(bf16), 0);
  auto ownRows = backend.allocate(ranks, maxRows * depth * sizeof(bf16), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Kernel::Scratch::firstEpoch));
  }
  const bool sharesGpu = gpuCount() < ranks;
  unsigned seed = 1;
  for (int round = 0; round < 2; ++round) {
    for (const GemmShape& shape : shapes) {
      CAPTURE(round);
      CAPTURE(shape.m);
      const auto rows = static_cast<std::size_t>(shape.m), columns = static_cast<std::size_t>(shape.n);
      const auto scratch = Kernel::scratchFor(maxRows, rows, depth);
      auto outputs = backend.allocate(ranks, (rows * columns + 64) * sizeof(bf16), poisonByte);
      const auto a = gemmValues(rows * depth, ++seed);
      std::vector<GemmInputs> inputs;
      std::vector<Gemm> gemms(ranks);
      const GpuStreams streams(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back({a, gemmValues(columns * depth, ++seed), std::vector<float>(rows, 1.0f),
                          std::vector<float>(columns, 1.0f)});
        weights.write(rank, convertTo<bfloat16_t>(inputs.back().b));
        // This rank's rows, and rubbish in those of the others.
        const std::size_t first = std::min(rows, static_cast<std::size_t>(rank) * scratch.slice);
        const std::size_t end = std::min(rows, first + scratch.slice);
        auto own = convertTo<bfloat16_t>(a);
        for (std::size_t i = 0; i < own.size(); ++i) {
          if (i < first * depth || i >= end * depth) own[i] = bfloat16_t(1000.0f);
        }
        // Slices of whole tiles are elsewhere, with rubbish in their place in the matrix.
        const bool isElsewhere = scratch.slice % Kernel::Mainloop::tileRows == 0;
        if (isElsewhere) {
          const auto row = [&](std::size_t i) { return own.begin() + static_cast<std::ptrdiff_t>(i * depth); };
          ownRows.write(rank, std::vector<bfloat16_t>(row(first), row(end)));
          std::fill(row(first), row(end), bfloat16_t(-1000.0f));
        }
        windows.write(rank, own, scratch.matrixOffset());
        setDeviceOfRank(rank);
        typename Gemm::Arguments arguments{};
        arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
        arguments.problem_shape = {shape.m, shape.n, shape.k, 1};
        if (isElsewhere) {
          arguments.mainloop.ptr_A = reinterpret_cast<const bfloat16_t*>(ownRows.window().at(rank));
          arguments.mainloop.dA = {shape.k, cute::Int<1>{}, 0};
        }
        arguments.mainloop.ptr_B = reinterpret_cast<const bfloat16_t*>(weights.window().at(rank));
        arguments.mainloop.dB = {shape.k, cute::Int<1>{}, 0};
        auto& gather = arguments.mainloop.gather;
        gather.team = Team<ranks>(rank, ranks);
        gather.window = makeWindow<ranks>(windows.window().base, ranks);
        gather.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(rank))};
        gather.scratch = scratch;
        gather.count = rows;
        gather.wait = backend.wait();
        arguments.epilogue.thread.alpha = 1.0f;
        arguments.epilogue.ptr_D = reinterpret_cast<bfloat16_t*>(outputs.window().at(rank));
        arguments.epilogue.dD = {shape.n, cute::Int<1>{}, 0};
        arguments.hw_info.sm_count = sharesGpu ? 32 : 0;
        arguments.scheduler.sendingBlocks = sendingBlocks[static_cast<std::size_t>(rank)];
        REQUIRE(Gemm::can_implement(arguments) == cutlass::Status::kSuccess);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].initialize(arguments) == cutlass::Status::kSuccess);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        setDeviceOfRank(rank);
        REQUIRE(gemms[static_cast<std::size_t>(rank)].run(streams[rank]) == cutlass::Status::kSuccess);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        setDeviceOfRank(rank);
        checkCuda(cudaStreamSynchronize(streams[rank]), "GEMM");
      }
      if (backend.control()->expired != 0) FAIL(describe(backend.control()->record));
      for (int rank = 0; rank < ranks; ++rank) {
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
TEST_CASE("CUTLASS: sending blocks of an all-gather are whole clusters beside others") {
  for (const int sending : {0, 2, 30}) CHECK(acceptsSendingBlocks<Gather<pingpongTile>>(sending, 32));
  for (const int sending : {-2, 3, 32, 34}) CHECK_FALSE(acceptsSendingBlocks<Gather<pingpongTile>>(sending, 32));
}

// On one rank alone. Without a control block, in which the first failure would end the others, each wait of a tile has
// its own limit.
TEST_CASE("CUTLASS: an all-gather whose other rank does not call ends within one time limit") {
  constexpr std::size_t rows = 2048, columns = 256;  // 16 rows of tiles, of which a block has several
  constexpr std::uint64_t limit = 400'000'000;
  using Kernel = Gather<pingpongTile>;
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
