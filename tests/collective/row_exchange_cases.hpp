// Cases of collective/row_exchange.hpp: contributions that are pushed in fragments, a transform of whole rows, and the
// three ways of delivery.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

using RowElement = std::int32_t;
inline constexpr std::size_t rowColumns = 40;
inline constexpr std::size_t rowParts = 2;
/// The first column of a part.
MSCCLPP_INLINE constexpr std::size_t partStart(std::size_t part) {
  return part == 0 ? 0 : part == 1 ? 24 : rowColumns;
}
/// The result of a row: its elements, complemented, then a word with their sum.
inline constexpr std::size_t rowResultBytes = rowColumns * sizeof(RowElement) + 16;
inline constexpr std::size_t maxRows = 21;
inline constexpr int rowsPerBlock = 4;
inline constexpr int maxRowCalls = 12;

struct RowParameters {
  Window<> scratch, epochs, inputs, outputs, barriers;
  int ranks;
  int calls;
  std::size_t rows[maxRowCalls];
  BoundedWait wait;
  std::uint32_t awaitedParts;
  int absentRank;                ///< makes no call; -1: none
  int slowRank;                  ///< -1: none
  std::uint64_t partDelay;       ///< nanoseconds before the slow rank contributes the last part of a block
  std::uint64_t transformDelay;  ///< before the slow rank's transform uses a row
  std::uint64_t callDelay;       ///< before some calls, in a pattern that differs between ranks
};

MSCCLPP_INLINE void rowDelay(std::uint64_t nanoseconds) {
  if (nanoseconds == 0) return;
  const auto start = arch::nanoseconds();
  while (arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
}

struct ComplementAndSum {
  std::uint64_t delay;

  template <class Warp, class Packs, class Output>
  MSCCLPP_HOST_DEVICE void operator()(const Warp& warp, std::size_t /*row*/, Packs& packs, const Output& output) const {
    rowDelay(delay);
    std::uint32_t sum = 0;
    packs.forEach([&](std::size_t column, Pack<RowElement>& pack) {
      for (int i = 0; i < packSize<RowElement>; ++i) {
        sum += static_cast<std::uint32_t>(pack[i]);
        pack[i] = ~pack[i];
      }
      output(column * sizeof(RowElement), toWord<RowElement>(pack));
    });
    std::uint32_t total = 0;
    for (int lane = 0; lane < warp.size(); ++lane) total += warp.shuffle(sum, lane);
    if (warp.rank() == 0) output(rowColumns * sizeof(RowElement), Word128{total, 0});
  }
};

/// Op: Sum, or RuntimeOp for the maximum.
template <class Scratch, class Op>
struct RowBody {
  RowParameters p;

  static MSCCLPP_HOST_DEVICE Scratch scratchFor(int ranks) {
    return Scratch{{maxRows, rowColumns, rowResultBytes, rowsPerBlock, ranks}};
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == p.absentRank) return;
    auto wait = p.wait;
    NoTrace trace;
    CollectiveArgs<0, Scratch> args{.team = Team<>(rank, p.ranks),
                                    .window = p.scratch,
                                    .epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))},
                                    .scratch = scratchFor(p.ranks),
                                    .count = 0,
                                    .wait = p.wait};
    auto& barrier = *reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    const bool isSlow = rank == p.slowRank;
    std::size_t before = 0;
    for (int call = 0; call < p.calls; ++call, before += maxRows) {
      args.count = p.rows[call];
      if ((call * 5 + rank) % 3 == 0) rowDelay(p.callDelay);
      const auto* input = reinterpret_cast<const RowElement*>(p.inputs.at(rank)) + before * rowColumns;
      std::byte* const output = p.outputs.at(rank, before * rowResultBytes);
      auto exchange = makeExchange(grid, args, wait, trace);
      contribute(exchange, grid, input, isSlow ? p.partDelay : 0);
      const auto sink = [&](std::size_t row, std::size_t byte, const Word128& word) {
        arch::storeWide(output + row * rowResultBytes + byte, word);
      };
      const ComplementAndSum transform{isSlow ? p.transformDelay : 0};
      constexpr int packs = static_cast<int>(rowColumns / packSize<RowElement>);  // for a warp of one lane
      const bool succeeded = exchange.template reduce<packs>(p.awaitedParts, transform, sink) && exchange.collect(sink);
      exchange.finish();
      if (!succeeded) return;
      if (!barrier.sync(grid, wait)) return;
    }
  }

  template <class GridType, class Trace>
  static MSCCLPP_INLINE auto makeExchange(const GridType& grid, const CollectiveArgs<0, Scratch>& args,
                                          BoundedWait& wait, Trace& trace) {
    if constexpr (StatelessOperator<Op>) {
      return makeRowExchange<Op>(grid, args, wait, trace);
    } else {
      return makeRowExchange(grid, args, wait, trace, Op{ReduceOp::MAX});
    }
  }

  /// Each part of a block of rows by a warp: whole packs in even rows, single elements in odd ones.
  template <class Exchange, class GridType>
  static MSCCLPP_INLINE void contribute(const Exchange& exchange, const GridType& grid, const RowElement* input,
                                        std::uint64_t delay) {
    const auto warp = grid.warp();
    const auto first = static_cast<std::size_t>(grid.warpIndex() * grid.blockCount() + grid.blockIndex());
    const auto stride = static_cast<std::size_t>(grid.warpCount() * grid.blockCount());
    for (std::size_t i = first; i < exchange.blocks() * rowParts; i += stride) {
      const std::size_t block = exchange.blockInOrder(i / rowParts);
      const std::size_t part = i % rowParts;
      if (part + 1 == rowParts) rowDelay(delay);
      for (std::size_t row = block * rowsPerBlock; row < (block + 1) * rowsPerBlock && row < exchange.rows(); ++row) {
        const RowElement* from = input + row * rowColumns;
        const std::size_t step = row % 2 == 0 ? 4 : 1;
        for (std::size_t column = partStart(part) + static_cast<std::size_t>(warp.rank()) * step;
             column < partStart(part + 1); column += static_cast<std::size_t>(warp.size()) * step) {
          if (step == 4) {
            exchange.contribute(
                row, column, Vector<RowElement, 4>{from[column], from[column + 1], from[column + 2], from[column + 3]});
          } else {
            exchange.contribute(row, column, Vector<RowElement, 1>{from[column]});
          }
        }
      }
      exchange.publish(warp, block);
    }
  }
};

struct RowOutcome {
  std::optional<WaitRecord> record;
  bool wrong;
};

/// Runs the calls in one launch, twice on the same scratch, and checks all outputs.
template <class Scratch, class Op = Sum>
RowOutcome runRows(int ranks, int blocks, int warps, RowParameters p, std::uint64_t timeout = waitTimeout,
                   int launches = 2) {
  Backend<> backend;
  const Scratch layout = RowBody<Scratch, Op>::scratchFor(ranks);
  auto scratch = backend.allocate(ranks, layout.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
  }
  constexpr std::size_t totalRows = maxRowCalls * maxRows;
  RowOutcome outcome{std::nullopt, false};
  for (int launch = 0; launch < launches && !outcome.record; ++launch) {
    auto inputs = backend.allocate(ranks, totalRows * rowColumns * sizeof(RowElement), 0);
    auto outputs = backend.allocate(ranks, totalRows * rowResultBytes, poisonByte);
    auto barriers = backend.allocate(ranks, 128, 0);
    std::vector<std::uint32_t> reduced(totalRows * rowColumns, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto values = randomBits<RowElement>(totalRows * rowColumns, static_cast<unsigned>(launch * 10 + rank + 1));
      inputs.write(rank, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto total = static_cast<RowElement>(reduced[i]);
        reduced[i] = static_cast<std::uint32_t>(rank == 0                 ? values[i]
                                                : std::is_same_v<Op, Sum> ? Sum::combine(total, values[i])
                                                                          : Max::combine(total, values[i]));
      }
    }
    p.ranks = ranks;
    p.scratch = scratch.window();
    p.epochs = epochs.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.barriers = barriers.window();
    p.wait = backend.wait(timeout);
    outcome.record = backend.run({ranks, blocks, warps}, RowBody<Scratch, Op>{p});
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::uint32_t> wanted(totalRows * rowResultBytes / 4, 0x01010101u * poisonByte);
      for (int call = 0; call < p.calls; ++call) {
        for (std::size_t row = 0; row < p.rows[call]; ++row) {
          if (Scratch::delivery == RowDelivery::ToOwner && Scratch::Owners::owner(row / rowsPerBlock, ranks) != rank) {
            continue;
          }
          const std::size_t index = static_cast<std::size_t>(call) * maxRows + row;
          std::uint32_t* const to = &wanted[index * rowResultBytes / 4];
          std::uint32_t sum = 0;
          for (std::size_t i = 0; i < rowColumns; ++i) {
            sum += reduced[index * rowColumns + i];
            to[i] = ~reduced[index * rowColumns + i];
          }
          to[rowColumns] = sum;
          to[rowColumns + 1] = to[rowColumns + 2] = to[rowColumns + 3] = 0;
        }
      }
      outcome.wrong |= outputs.template read<std::uint32_t>(rank) != wanted;
    }
  }
  return outcome;
}

inline RowParameters variedRows(unsigned seed) {
  RowParameters p{};
  p.calls = maxRowCalls;
  p.awaitedParts = rowParts;
  p.absentRank = p.slowRank = -1;
  p.callDelay = 20'000;
  std::mt19937 random(seed);
  for (std::size_t& rows : p.rows) rows = random() % 3 == 0 ? maxRows : random() % maxRows + 1;
  p.rows[1] = 1;
  p.rows[2] = 1;
  return p;
}

template <RowDelivery delivery>
struct RightRowScratch : RowScratch<RowElement, delivery> {};

template <RowDelivery delivery>
void checkRows() {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const int blocks = ranks == 2 ? 2 : 1;
    const auto outcome = runRows<RightRowScratch<delivery>>(ranks, blocks, 2, variedRows(static_cast<unsigned>(ranks)));
    if (outcome.record) FAIL_CHECK(describe(*outcome.record));
    CHECK_FALSE(outcome.wrong);
  }
}

TEST_CASE("row exchange: rows to their owners") {
  checkRows<RowDelivery::ToOwner>();
}
TEST_CASE("row exchange: rows to all ranks, in two hops") {
  checkRows<RowDelivery::ToAll>();
}
TEST_CASE("row exchange: rows reduced by every rank, in one hop") {
  checkRows<RowDelivery::Redundant>();
}

TEST_CASE("row exchange: an operator that is chosen at run time") {
  const auto outcome = runRows<RightRowScratch<RowDelivery::ToAll>, RuntimeOp>(3, 1, 2, variedRows(5));
  if (outcome.record) FAIL_CHECK(describe(*outcome.record));
  CHECK_FALSE(outcome.wrong);
}

TEST_CASE("row exchange: a rank that does not contribute is named") {
  RowParameters p = variedRows(1);
  p.absentRank = 1;
  const auto outcome = runRows<RightRowScratch<RowDelivery::Redundant>>(2, 1, 1, p, 1'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
  CHECK(outcome.record->expected == rowParts);
}

/// A wrong scratch: calls do not alternate between two sets of contributions.
struct OneSetScratch : RowScratch<RowElement, RowDelivery::Redundant> {
  MSCCLPP_HOST_DEVICE std::size_t contributionOffset(std::uint64_t, std::size_t row, int from) const {
    return RowScratch::contributionOffset(0, row, from);
  }
};
/// A wrong scratch: arrivals of the call before are not cleared.
struct UnclearedScratch : RowScratch<RowElement, RowDelivery::Redundant> {
  MSCCLPP_HOST_DEVICE std::size_t arrivalWords() const { return 0; }
};

// These have an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("row exchange: these checks detect missing waits") {
  RowParameters p = variedRows(3);
  for (std::size_t& rows : p.rows) rows = maxRows;
  p.slowRank = 1;
  SUBCASE("for parts") {
    const auto isWrong = [&](std::uint64_t factor) {
      p.partDelay = factor * 2'000'000;
      return runRows<RightRowScratch<RowDelivery::ToAll>>(2, 1, 1, p).wrong;
    };
    CHECK_FALSE(isWrong(1));
    p.awaitedParts = 1;
    CHECK(isFoundWithLongerDelays(isWrong));
  }
  SUBCASE("for the readers of a set") {
    p.transformDelay = 200'000;
    CHECK_FALSE(runRows<RightRowScratch<RowDelivery::Redundant>>(2, 1, 1, p).wrong);
    CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) {
      p.transformDelay = factor * 200'000;
      return runRows<OneSetScratch>(2, 1, 1, p).wrong;
    }));
  }
  SUBCASE("for arrivals that were not cleared") {
    CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) {
      p.partDelay = factor * 2'000'000;
      return runRows<UnclearedScratch>(2, 1, 1, p).wrong;
    }));
  }
}
#endif

TEST_CASE("row exchange: regions of the scratch do not overlap") {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (const std::size_t rows : {1, 4, 5, 21}) {
      const RowScratch<RowElement, RowDelivery::ToAll> scratch{rows, rowColumns, rowResultBytes, rowsPerBlock, ranks};
      struct Region {
        std::size_t begin, end;
      };
      std::vector<Region> regions;
      for (std::uint64_t epoch = 6; epoch < 8; ++epoch) {
        for (std::size_t row = 0; row < rows; ++row) {
          const std::size_t result = scratch.resultOffset(epoch, row);
          regions.push_back({result, result + rowResultBytes});
          const std::size_t ready = scratch.readyOffset(epoch, row);
          regions.push_back({ready, ready + 8});
          if (CyclicOwners::owner(scratch.blockOf(row), ranks) != 0) continue;  // what rank 0 gets
          for (int from = 0; from < ranks; ++from) {
            const std::size_t at = scratch.contributionOffset(epoch, row, from);
            REQUIRE(at % 16 == 0);
            regions.push_back({at, at + scratch.rowBytes()});
          }
        }
      }
      for (std::uint64_t epoch = 6; epoch < 9; ++epoch) {
        for (std::size_t block = 0; block < scratch.blocks(); block += static_cast<std::size_t>(ranks)) {
          for (int from = 0; from < ranks; ++from) {
            const std::size_t at = scratch.arrivalOffset(epoch, block, from);
            regions.push_back({at, at + 4});
          }
        }
      }
      for (int from = 0; from < ranks; ++from)
        regions.push_back({scratch.entryOffset(from), scratch.entryOffset(from) + 8});
      std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
      for (std::size_t i = 0; i + 1 < regions.size(); ++i) REQUIRE(regions[i].end <= regions[i + 1].begin);
      REQUIRE(regions.back().end <= scratch.windowBytes());
    }
  }
}

}  // namespace mscclpp::test
