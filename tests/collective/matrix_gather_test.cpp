// A row gather into one matrix, in calls of different sizes on one scratch.
#include "mscclpp/collective/matrix_gather.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/row_gather.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using Scratch = MatrixGather<std::uint32_t>;
constexpr std::size_t columns = 28;
constexpr int rowsPerBlock = 6;
constexpr std::size_t partColumns = 8;  // four, of which the last one has fewer

Scratch scratchFor(std::size_t maxRows, std::size_t rows, int ranks) {
  const auto team = static_cast<std::size_t>(ranks);
  return {{ceilDivide(maxRows, team), columns, rowsPerBlock, 2, partColumns, ranks}, ceilDivide(rows, team)};
}

/// Sends this rank's rows, and copies those of all ranks to the output as they arrive, each block of rows by one warp.
struct GatherBody {
  Window<> windows, epochs, outputs;
  Scratch scratch;
  std::size_t rows;
  RowSendOrder order;
  BoundedWait wait;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto waiting = wait;
    NoTrace trace;
    const CollectiveArgs<0, Scratch> args{.team = Team<>(rank, scratch.ranks),
                                          .window = windows,
                                          .epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))},
                                          .scratch = scratch,
                                          .count = rows,
                                          .wait = wait};
    auto gather = makeRowGather(grid, args, waiting, trace);
    gather.send(windows.at(rank, scratch.rowOffset(rank, rank, 0)), scratch.rowBytes(), scratch.rowBytes(), order);
    // Blocks of rows are distributed over the warps.
    const int warps = grid.warpCount() * grid.blockCount();
    int next = grid.warpIndex() * grid.blockCount() + grid.blockIndex();
    for (int from = 0; from < scratch.ranks; ++from) {
      const Range present = gather.rowsOf(from);
      for (std::size_t block = 0; block < gather.blocksOf(from); ++block) {
        if (next-- != 0) continue;
        next = warps - 1;
        if (!gather.await({from, block})) break;
        for (std::size_t row = block * rowsPerBlock; row < (block + 1) * rowsPerBlock && row < present.size(); ++row) {
          copy(grid.warp(), outputs.at(rank, (present.begin + row) * scratch.rowBytes()),
               windows.at(rank, scratch.matrixOffset() + (present.begin + row) * scratch.rowBytes()),
               scratch.rowBytes());
        }
      }
    }
    grid.block().sync();
    gather.finish();
  }
};

void checkCalls(int ranks, int blocks, int warps, const RowSendOrder& order) {
  constexpr std::size_t maxRows = 61;
  Backend<> backend;
  auto windows = backend.allocate(ranks, scratchFor(maxRows, maxRows, ranks).windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
  }
  unsigned seed = 1;
  for (const std::size_t rows : {std::size_t{1}, maxRows, std::size_t{17}, std::size_t{48}, maxRows}) {
    CAPTURE(ranks);
    CAPTURE(rows);
    const Scratch scratch = scratchFor(maxRows, rows, ranks);
    auto outputs = backend.allocate(ranks, maxRows * scratch.rowBytes(), poisonByte);
    const auto matrix = randomBits<std::uint32_t>(rows * columns, ++seed);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t first = std::min(rows, static_cast<std::size_t>(rank) * scratch.slice);
      const std::size_t end = std::min(rows, first + scratch.slice);
      std::vector<std::uint32_t> own(matrix.begin() + static_cast<std::ptrdiff_t>(first * columns),
                                     matrix.begin() + static_cast<std::ptrdiff_t>(end * columns));
      if (!own.empty()) windows.write(rank, own, scratch.rowOffset(rank, rank, 0));
    }
    const auto record = backend.run(
        {ranks, blocks, warps},
        GatherBody{windows.window(), epochs.window(), outputs.window(), scratch, rows, order, backend.wait()});
    if (record) FAIL(describe(*record));
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      auto wanted = matrix;
      wanted.resize(maxRows * columns, 0x01010101u * poisonByte);
      CHECK(outputs.template read<std::uint32_t>(rank) == wanted);
    }
  }
}

}  // namespace

TEST_CASE("matrix gather: all rows reach all ranks, in calls of different sizes") {
  checkCalls(1, 1, 1, {});
  checkCalls(2, 2, 2, {.blocksTogether = 3, .columnPartsTogether = 1});
  checkCalls(3, 1, 3, {.blocksTogether = 1, .columnPartsTogether = 2});
  checkCalls(4, 2, 1, {.blocksTogether = 2, .columnPartsTogether = 4});
}
