// A row gather into one matrix, in calls of different sizes on one scratch.
#include "mscclpp/collective/matrix_gather.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/row_gather.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int scalesPerRow = 3;
using Scratch = MatrixGather<std::uint32_t, scalesPerRow>;
constexpr std::size_t columns = 28;
constexpr int rowsPerBlock = 6;
constexpr std::size_t partColumns = 8;  // four, of which the last one has fewer

Scratch scratchFor(std::size_t maxRows, std::size_t rows, int ranks) {
  const auto team = static_cast<std::size_t>(ranks);
  return {{ceilDivide(maxRows, team), columns, rowsPerBlock, 2, partColumns, ranks}, ceilDivide(rows, team)};
}

/// Steps of RowGather::sendBy(): one lane copies, and another one announces, what is for a peer after an enter().
template <class Gather, class Warp>
struct LaneSteps {
  const Gather& gather;
  const Warp& warp;
  const Scratch& scratch;
  bool& hasEntered;  ///< since what was for the peer before
  int& peerOfRows;

  MSCCLPP_HOST_DEVICE void enter() const { hasEntered = true; }
  MSCCLPP_HOST_DEVICE void copyRows(std::byte* to, const std::byte* from, std::size_t rows, std::size_t size) const {
    if (warp.rank() != warp.size() - 1) return;
    for (std::size_t row = 0; row < rows; ++row) {
      copy(cpu::SerialGroup{}, to + row * scratch.rowBytes(), from + row * scratch.rowBytes(), size);
    }
  }
  MSCCLPP_HOST_DEVICE void partsSent(int peer, std::size_t block, std::uint32_t rowPart, std::uint32_t begin,
                                     std::uint32_t end) const {
    if (peer != peerOfRows && hasEntered) {
      peerOfRows = peer;
      hasEntered = false;
    }
    if (peer != peerOfRows) return;
    warp.sync();
    if (warp.rank() != 0) return;
    arch::fence<arch::Scope::System>();
    for (; begin < end; ++begin) {
      gather.announce(peer, block, scratch.partAt(static_cast<int>(begin), static_cast<int>(rowPart)));
    }
  }
};

/// Sends this rank's rows and their scales, and copies those of all ranks to the outputs as they arrive, each block of
/// rows by one warp.
struct GatherBody {
  Window<> windows, epochs, outputs, scales;
  Scratch scratch;
  std::size_t rows;
  RowSendOrder order;
  bool byLanes;
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
    const SentRows own{windows.at(rank, scratch.rowOffset(rank, rank, 0)), scratch.rowBytes(), scratch.rowBytes(),
                       gather.scales(rank)};
    if (byLanes) {
      const auto warp = grid.warp();
      bool hasEntered = false;
      int peer = -1;
      const LaneSteps<decltype(gather), std::decay_t<decltype(warp)>> steps{gather, warp, scratch, hasEntered, peer};
      gather.sendBy(steps, own, order);
    } else {
      gather.send(own, order);
    }
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
          copy(grid.warp(), scales.at(rank, scratch.scaleBytes(present.begin + row)),
               gather.scales(from) + row * scalesPerRow, scratch.scaleBytes(1));
        }
      }
    }
    grid.block().sync();
    gather.finish();
  }
};

void checkCalls(int ranks, int blocks, int warps, const RowSendOrder& order, bool byLanes = false) {
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
    auto scales = backend.allocate(ranks, scratch.scaleBytes(maxRows), poisonByte);
    const auto matrix = randomBits<std::uint32_t>(rows * columns, ++seed),
               scalesOfRows = randomBits<std::uint32_t>(rows * scalesPerRow, ++seed);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t first = std::min(rows, static_cast<std::size_t>(rank) * scratch.slice);
      const std::size_t end = std::min(rows, first + scratch.slice);
      const auto ownOf = [&](const std::vector<std::uint32_t>& all, std::size_t perRow) {
        return std::vector<std::uint32_t>(all.begin() + static_cast<std::ptrdiff_t>(first * perRow),
                                          all.begin() + static_cast<std::ptrdiff_t>(end * perRow));
      };
      if (first == end) continue;
      windows.write(rank, ownOf(matrix, columns), scratch.rowOffset(rank, rank, 0));
      windows.write(rank, ownOf(scalesOfRows, scalesPerRow), scratch.scalesOffset(rank, rank, 0));
    }
    const auto record =
        backend.run({ranks, blocks, warps}, GatherBody{windows.window(), epochs.window(), outputs.window(),
                                                       scales.window(), scratch, rows, order, byLanes, backend.wait()});
    if (record) FAIL(describe(*record));
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      const auto padded = [&](std::vector<std::uint32_t> values, std::size_t perRow) {
        values.resize(maxRows * perRow, 0x01010101u * poisonByte);
        return values;
      };
      CHECK(outputs.template read<std::uint32_t>(rank) == padded(matrix, columns));
      CHECK(scales.template read<std::uint32_t>(rank) == padded(scalesOfRows, scalesPerRow));
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
TEST_CASE("matrix gather: rows that are sent by other means") {
  checkCalls(2, 2, 2, {.blocksTogether = 3, .columnPartsTogether = 1}, true);
  checkCalls(4, 1, 2, {.blocksTogether = 2, .columnPartsTogether = 3}, true);
}
