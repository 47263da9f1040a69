// Cases of sync/team_barrier.hpp: no rank passes before all have arrived, and earlier writes are visible afterwards.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/sync/team_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// In each round every thread writes the round to all ranks and, after the barrier, checks what all threads wrote.
template <int Ranks>
struct TeamBarrierBody {
  static constexpr std::size_t dataOffset = 512;
  Window<> memory;  // barrier words; from dataOffset: a word per thread and rank
  Window<> epochs;  // local: the epoch; from 64: wrong words found by each thread
  int ranks;
  int rounds;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    auto wait = policy;
    Window<Ranks> window{};
    for (int r = 0; r < ranks; ++r) window.base[r] = memory.at(r);
    TeamBarrier<Ranks> barrier{Team<Ranks>(rank, ranks), window, reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    std::uint64_t wrong = 0;
    for (int round = 1; round <= rounds; ++round) {
      for (int r = 0; r < ranks; ++r) data(r)[rank * block.size() + block.rank()] = round;
      if (!barrier.sync(block, wait)) ++wrong;
      for (int i = 0; i < ranks * block.size(); ++i) wrong += data(rank)[i] != static_cast<std::uint64_t>(round);
      if (!barrier.sync(block, wait)) ++wrong;
    }
    for (int round = 0; round < rounds; ++round) {
      if (!barrier.template sync<arch::Order::Relaxed>(block, wait)) ++wrong;
    }
    reinterpret_cast<std::uint64_t*>(epochs.at(rank, 64))[block.rank()] = wrong;
  }

 private:
  MSCCLPP_HOST_DEVICE std::uint64_t* data(int rank) const {
    return reinterpret_cast<std::uint64_t*>(memory.at(rank, dataOffset));
  }
};

template <int Ranks, int Width>
void checkTeamBarrier(int ranks, int rounds, std::uint64_t firstEpoch) {
  Backend<Width> backend;
  using Body = TeamBarrierBody<Ranks>;
  constexpr int threads = Backend<Width>::warpWidth;
  const auto words = static_cast<std::size_t>(ranks * threads);
  auto memory = backend.allocate(ranks, Body::dataOffset + words * sizeof(std::uint64_t), 0);
  auto epochs = backend.allocate(ranks, 64 + threads * sizeof(std::uint64_t), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>{firstEpoch});
    memory.write(rank, std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), firstEpoch));
  }
  backend.launch({ranks, 1, 1}, Body{memory.window(), epochs.window(), ranks, rounds, backend.wait()});
  INFO(ranks << " ranks");
  for (int rank = 0; rank < ranks; ++rank) {
    const auto after = epochs.template read<std::uint64_t>(rank);
    CHECK(after[0] == firstEpoch + 3 * static_cast<std::uint64_t>(rounds));
    for (std::size_t t = 0; t < threads; ++t) CHECK(after[8 + t] == 0);
  }
}

TEST_CASE("team_barrier: any number of ranks") {
  for (int ranks = 1; ranks <= 8; ++ranks) checkTeamBarrier<0, 2>(ranks, 40, 0);
  checkTeamBarrier<0, 1>(4, 100, 0);
  checkTeamBarrier<0, 4>(3, 40, 0);
}

TEST_CASE("team_barrier: a fixed number of ranks, and an epoch beyond 32 bits") {
  checkTeamBarrier<2, 2>(2, 100, 0xfffffff0u);
  checkTeamBarrier<8, 2>(8, 30, 0xfffffff0u);
}

/// All ranks but the last arrive.
struct AbsentRankBody {
  Window<> memory;
  int ranks;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == ranks - 1) return;
    auto wait = policy;
    TeamBarrier<> barrier{Team<>(rank, ranks), memory, reinterpret_cast<std::uint64_t*>(memory.at(rank, 512))};
    barrier.sync(grid.block(), wait, 7);
  }
};

TEST_CASE("team_barrier: a rank that does not arrive is named") {
  Backend<> backend;
  auto memory = backend.allocate(3, 1024, 0);
  const auto record = backend.run({3, 1, 1}, AbsentRankBody{memory.window(), 3, backend.wait(30'000'000)});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::TeamBarrier);
  CHECK(record->peer == 2);
  CHECK(record->rank < 2);
  CHECK(record->block == 7);
  CHECK(record->expected == 1);
  CHECK(record->seen == 0);
}

}  // namespace mscclpp::test
