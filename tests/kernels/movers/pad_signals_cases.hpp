// Cases of kernels/movers/pad_signals.hpp: a signal orders the writes before it, is consumed once, and a second one
// waits for that; pads are zero afterwards.
#pragma once

#include <doctest/doctest.h>

#include "kernels/movers/pad_signals.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// The memory of a rank: its pad, and from `data` on words that others write.
struct PadMemory {
  static constexpr std::size_t padBytes = 1024;
  static constexpr std::size_t bytes = padBytes + 1024;

  Window<> window;

  MSCCLPP_HOST_DEVICE kernels::PadChannel channel(int rank, int ranks, int number) const {
    return {Team<>(rank, ranks), window, number};
  }
  MSCCLPP_HOST_DEVICE std::uint64_t* data(int rank) const {
    return reinterpret_cast<std::uint64_t*>(window.at(rank, padBytes));
  }
};

/// In each round a rank writes the round to all others, and after a barrier finds what all have written.
struct PadBarrierBody {
  PadMemory memory;
  int ranks;
  int rounds;
  int channels;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    const std::uint64_t all = (std::uint64_t{1} << ranks) - 1;
    std::uint64_t wrong = 0;
    for (int round = 1; round <= rounds; ++round) {
      const kernels::ExchangePadSignals::Args args{memory.channel(rank, ranks, round % channels), all, all, policy};
      if (block.rank() == 0) {
        for (int r = 0; r < ranks; ++r) memory.data(r)[rank] = static_cast<std::uint64_t>(round);
      }
      block.sync();
      kernels::ExchangePadSignals::run(grid, args);
      block.sync();
      for (int r = 0; r < ranks; ++r) wrong += memory.data(rank)[r] != static_cast<std::uint64_t>(round);
      block.sync();
      kernels::ExchangePadSignals::run(grid, args);
      block.sync();
    }
    if (wrong != 0) memory.data(rank)[64] = wrong;
  }
};

template <int Width>
void checkPadBarrier(int ranks, int channels) {
  Backend<Width> backend;
  auto buffers = backend.allocate(ranks, PadMemory::bytes, 0);
  const int rounds = 50;
  backend.launch({ranks, 1, 1}, PadBarrierBody{{buffers.window()}, ranks, rounds, channels, backend.wait()});
  INFO(ranks << " ranks");
  for (int rank = 0; rank < ranks; ++rank) {
    const auto words = buffers.template read<std::uint64_t>(rank);
    for (std::size_t i = 0; i < PadMemory::padBytes / sizeof(std::uint64_t); ++i) CHECK(words[i] == 0);
    CHECK(words[PadMemory::padBytes / sizeof(std::uint64_t) + 64] == 0);
  }
}

TEST_CASE("pad_signals: a barrier of any number of ranks, and channels in turn") {
  for (const int ranks : {1, 2, 3, 8}) checkPadBarrier<4>(ranks, 1);
  checkPadBarrier<1>(4, 3);
}

/// Rank 0 writes and signals; rank 1 waits, and compares. Nothing else tells rank 0 that rank 1 has read, but that a
/// signal is put after the one before it has been consumed.
struct PadMessagesBody {
  PadMemory memory;
  int messages;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto wait = policy;
    const auto channel = memory.channel(rank, 2, 5);
    std::uint64_t wrong = 0;
    for (int i = 0; i < messages; ++i) {
      if (rank == 0) {
        memory.data(1)[i % 64] = static_cast<std::uint64_t>(i);
        channel.put(1, wait);
      } else {
        channel.await(0, wait);
        // At most one signal is ahead.
        wrong += i >= 64 ? 0 : memory.data(1)[i] != static_cast<std::uint64_t>(i);
      }
    }
    if (wrong != 0) memory.data(rank)[65] = wrong;
  }
};

TEST_CASE("pad_signals: writes before a signal are visible after the wait, and no signal is lost") {
  Backend<> backend;
  auto buffers = backend.allocate(2, PadMemory::bytes, 0);
  backend.launch({2, 1, 1}, PadMessagesBody{{buffers.window()}, 64, backend.wait()});
  const auto words = buffers.template read<std::uint64_t>(1);
  CHECK(words[PadMemory::padBytes / sizeof(std::uint64_t) + 65] == 0);
  for (std::size_t i = 0; i < PadMemory::padBytes / sizeof(std::uint64_t); ++i) CHECK(words[i] == 0);
}

/// Two signals of which one is consumed, or a wait for one that nobody puts.
struct PadFailureBody {
  PadMemory memory;
  bool isPut;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0 || rank != 1) return;
    auto wait = policy;
    const auto channel = memory.channel(rank, 3, 0);
    if (isPut && channel.put(2, wait)) channel.put(2, wait);
    if (!isPut) channel.await(2, wait);
  }
};

TEST_CASE("pad_signals: waits that fail name the rank") {
  for (const bool isPut : {true, false}) {
    Backend<> backend;
    auto buffers = backend.allocate(3, PadMemory::bytes, 0);
    const auto record = backend.run({3, 1, 1}, PadFailureBody{{buffers.window()}, isPut, backend.wait(30'000'000)});
    REQUIRE(record);
    CHECK(record->operation == WaitOperation::Semaphore);
    CHECK(record->rank == 1);
    CHECK(record->peer == 2);
    CHECK(record->expected == (isPut ? 0 : 1));
    CHECK(record->seen == (isPut ? 1 : 0));
  }
}

}  // namespace mscclpp::test
