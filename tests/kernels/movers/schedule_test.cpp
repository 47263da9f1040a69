// The schedules of the mover, without copies: every byte arrives once, no output has two writers in a step, and what is
// forwarded has arrived in an earlier step.
#include "kernels/movers/schedule.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>

using namespace mscclpp;
using namespace mscclpp::kernels;

namespace {

constexpr int mostRanks = 8;
constexpr std::size_t mostBytes = 9;

/// Byte `offset` of the input of `rank`, as a number that no other byte has; 0 is no byte.
constexpr std::uint16_t byteOf(int rank, std::size_t offset) {
  return static_cast<std::uint16_t>(1 + rank * 1000 + static_cast<int>(offset));
}

using Output = std::array<std::uint16_t, mostRanks * mostBytes>;

/// What `rank` must have at the end.
constexpr Output expectedOutput(const CopySchedule& schedule, int rank) {
  Output output{};
  const std::size_t bytes = schedule.bytes;
  const std::size_t parts = static_cast<std::size_t>(schedule.ranks) * bytes;
  switch (schedule.collective) {
    case CollectiveType::AllGather:
    case CollectiveType::Gather:
      if (!schedule.hasOutput(rank)) return output;
      for (std::size_t i = 0; i < parts; ++i) output[i] = byteOf(static_cast<int>(i / bytes), i % bytes);
      return output;
    case CollectiveType::AllToAll:
      for (std::size_t i = 0; i < parts; ++i) {
        output[i] = byteOf(static_cast<int>(i / bytes), static_cast<std::size_t>(rank) * bytes + i % bytes);
      }
      return output;
    case CollectiveType::Broadcast:
      for (std::size_t i = 0; i < bytes; ++i) output[i] = byteOf(schedule.root, i);
      return output;
    case CollectiveType::Scatter:
      for (std::size_t i = 0; i < bytes; ++i) {
        output[i] = byteOf(schedule.root, static_cast<std::size_t>(rank) * bytes + i);
      }
      return output;
    default:
      return output;
  }
}

/// Performs the steps of a schedule on all ranks: what a copy reads is as it was before the step. Returns whether the
/// outputs are right and the rules are kept.
template <class Schedule>
constexpr bool isCorrect(const Schedule& schedule) {
  const std::size_t ranks = static_cast<std::size_t>(schedule.ranks);
  std::array<Output, mostRanks> outputs{};
  const auto write = [&](const std::array<Output, mostRanks>& before, int rank, const Transfer& transfer) {
    if (transfer.to < 0 || transfer.to >= schedule.ranks) return false;
    if (transfer.destination + transfer.bytes > outputs[0].size()) return false;
    for (std::size_t i = 0; i < transfer.bytes; ++i) {
      std::uint16_t& to = outputs[static_cast<std::size_t>(transfer.to)][transfer.destination + i];
      const std::uint16_t byte = transfer.fromOutput ? before[static_cast<std::size_t>(rank)][transfer.source + i]
                                                     : byteOf(rank, transfer.source + i);
      if (to != 0 || byte == 0) return false;
      to = byte;
    }
    return true;
  };
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Transfer own = schedule.localCopy(rank);
    if (own.bytes > 0 && (own.to != rank || own.fromOutput || !write(outputs, rank, own))) return false;
  }
  const bool permutes =
      schedule.collective == CollectiveType::AllGather || schedule.collective == CollectiveType::AllToAll;
  for (std::size_t step = 0; step < schedule.steps(); ++step) {
    const auto before = outputs;
    std::array<int, mostRanks> writers{};
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const Transfer transfer = schedule.transfer(rank, step);
      if (transfer.bytes == 0) continue;
      if (transfer.to == rank || !write(before, rank, transfer)) return false;
      ++writers[static_cast<std::size_t>(transfer.to)];
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (writers[rank] > 1 || (permutes && writers[rank] != 1)) return false;
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (outputs[static_cast<std::size_t>(rank)] != expectedOutput(schedule, rank)) return false;
  }
  return true;
}

constexpr CopySchedule scheduleOf(CollectiveType collective, int ranks, std::size_t bytes, std::size_t pieceBytes = 0,
                                  int root = 0) {
  return {collective, ranks, root, bytes, pieceBytes};
}

static_assert(isCorrect(scheduleOf(CollectiveType::AllGather, 2, 3)));
static_assert(isCorrect(scheduleOf(CollectiveType::AllGather, 4, 5, 2)));
static_assert(isCorrect(scheduleOf(CollectiveType::AllToAll, 4, 3, 2)));
static_assert(isCorrect(scheduleOf(CollectiveType::Broadcast, 4, 5, 2, 1)));
static_assert(isCorrect(scheduleOf(CollectiveType::Gather, 4, 3, 0, 2)));
static_assert(isCorrect(scheduleOf(CollectiveType::Scatter, 4, 3, 0, 3)));

static_assert(scheduleOf(CollectiveType::AllGather, 2, 100, 10).steps() == 1);
static_assert(scheduleOf(CollectiveType::AllGather, 4, 100).steps() == 3);
static_assert(scheduleOf(CollectiveType::AllToAll, 4, 100, 30).steps() == 12);
static_assert(scheduleOf(CollectiveType::Broadcast, 2, 100, 10).steps() == 1);
static_assert(scheduleOf(CollectiveType::Broadcast, 4, 100).steps() == 3);
static_assert(scheduleOf(CollectiveType::Broadcast, 4, 100, 10).steps() == 12);
static_assert(scheduleOf(CollectiveType::Gather, 4, 100, 10).steps() == 3);
static_assert(scheduleOf(CollectiveType::Scatter, 1, 100).steps() == 0);
static_assert(scheduleOf(CollectiveType::AllGather, 4, 0).steps() == 0);
static_assert(!CopySchedule::supports(CollectiveType::AllReduce) && CopySchedule::supports(CollectiveType::Scatter));

// Schedules that the check must reject.
struct AllToOneRank : CopySchedule {
  constexpr Transfer transfer(int rank, std::size_t step) const {
    Transfer transfer = CopySchedule::transfer(rank, step);
    if (rank != static_cast<int>(step)) transfer.to = static_cast<int>(step);
    return transfer;
  }
};
struct WithoutLastStep : CopySchedule {
  constexpr std::size_t steps() const { return CopySchedule::steps() - 1; }
};
struct ForwardedTooEarly : CopySchedule {
  constexpr Transfer transfer(int rank, std::size_t step) const {
    return CopySchedule::transfer(rank, rank == root ? step : step + 1);
  }
};
static_assert(!isCorrect(AllToOneRank{scheduleOf(CollectiveType::AllGather, 3, 2)}));
static_assert(!isCorrect(WithoutLastStep{scheduleOf(CollectiveType::AllToAll, 3, 2)}));
static_assert(!isCorrect(ForwardedTooEarly{scheduleOf(CollectiveType::Broadcast, 3, 4, 2)}));

}  // namespace

TEST_CASE("mover schedules: every team, root, size and piece") {
  for (const CollectiveType collective : {CollectiveType::AllGather, CollectiveType::AllToAll,
                                          CollectiveType::Broadcast, CollectiveType::Gather, CollectiveType::Scatter}) {
    for (int ranks = 1; ranks <= mostRanks; ++ranks) {
      for (int root = 0; root < (hasRoot(collective) ? ranks : 1); ++root) {
        for (std::size_t bytes = 0; bytes <= mostBytes; ++bytes) {
          for (const std::size_t pieceBytes :
               {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{5}, static_cast<std::size_t>(-1)}) {
            INFO(nameOf(collective) << ", " << ranks << " ranks, root " << root << ", " << bytes
                                    << " bytes in pieces of " << pieceBytes);
            CHECK(isCorrect(scheduleOf(collective, ranks, bytes, pieceBytes, root)));
          }
        }
      }
    }
  }
}
