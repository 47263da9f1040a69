// sync/switch_semaphore.hpp on CPU ranks: no rank passes before all have arrived, writes before the barrier are visible
// after it, and counters may overflow.
#include "mscclpp/sync/switch_semaphore.hpp"

#include <doctest/doctest.h>

#include "tests/backend/multicast.hpp"

namespace mscclpp::test {
namespace {

constexpr std::size_t generationOffset = 64;
constexpr std::size_t dataOffset = 128;

SwitchSemaphoreHandle semaphoreOf(EmulatedMulticast& multicast, const Window<>& window, int ranks, int rank,
                                  WaitControl* control, std::uint64_t timeout = waitTimeout) {
  return {{},
          multicast.address(),
          reinterpret_cast<std::uint64_t*>(window.at(rank)),
          reinterpret_cast<std::uint64_t*>(window.at(rank, generationOffset)),
          control,
          timeout,
          ranks,
          rank,
          nullptr};
}

/// In each round every rank writes to all ranks' memory, passes the barrier, checks its own memory, and passes it
/// again.
void checkBarrier(int ranks, int rounds, std::uint64_t firstCount) {
  INFO(ranks, " ranks");
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, dataOffset + static_cast<std::size_t>(ranks) * 8, 0);
  const auto window = memory.window();
  for (int rank = 0; rank < ranks; ++rank) {
    memory.write(rank, std::vector<std::uint64_t>{firstCount});
    memory.write(rank, std::vector<std::uint64_t>{firstCount}, generationOffset);
  }
  EmulatedMulticast multicast(window, ranks);
  std::vector<int> wrong(static_cast<std::size_t>(ranks));
  backend.launch({ranks, 1, 1}, [&](int rank, const auto&) {
    auto semaphore = semaphoreOf(multicast, window, ranks, rank, backend.control());
    const auto data = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r, dataOffset)); };
    int errors = 0;
    for (int round = 1; round <= rounds; ++round) {
      for (int r = 0; r < ranks; ++r) data(r)[rank] = static_cast<std::uint64_t>(round);
      semaphore.signal();
      errors += !semaphore.wait();
      for (int r = 0; r < ranks; ++r) errors += data(rank)[r] != static_cast<std::uint64_t>(round);
      semaphore.signal();
      if (round % 2 == 0) {
        errors += !semaphore.wait();
      } else {
        const auto start = arch::nanoseconds();
        bool passed = false;
        for (unsigned failures = 1; !(passed = semaphore.poll()) && arch::nanoseconds() - start < waitTimeout;
             ++failures)
          arch::backoff(failures);
        errors += !passed;
      }
    }
    for (int round = 0; round < rounds; ++round) {
      semaphore.relaxedSignal();
      errors += !semaphore.relaxedWait();
    }
    wrong[static_cast<std::size_t>(rank)] = errors;
  });
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(wrong[static_cast<std::size_t>(rank)] == 0);
    const auto after = memory.read<std::uint64_t>(rank);
    const std::uint64_t last = firstCount + 3 * static_cast<std::uint64_t>(rounds * ranks);
    CHECK(after[0] == last);
    CHECK(after[generationOffset / 8] == last);
  }
}

}  // namespace

TEST_CASE("switch_semaphore: any number of ranks") {
  for (int ranks = 1; ranks <= 8; ++ranks) checkBarrier(ranks, 30, 0);
}

TEST_CASE("switch_semaphore: counters that overflow") {
  checkBarrier(3, 40, 0xffffffffffffffffu - 50);
  checkBarrier(7, 20, 0x7fffffffffffffffu - 50);  // the sign
}

TEST_CASE("switch_semaphore: a wait for a rank that does not signal leaves a record") {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(3, dataOffset, 0);
  const auto window = memory.window();
  EmulatedMulticast multicast(window, 3);
  const auto record = backend.run({3, 1, 1}, [&](int rank, const auto&) {
    if (rank == 1) return;
    auto semaphore = semaphoreOf(multicast, window, 3, rank, backend.control(), 30'000'000);
    semaphore.signal();
    semaphore.wait();
  });
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
  CHECK(record->peer == -1);
  CHECK(record->rank != 1);
  CHECK(record->expected == 3);
  CHECK((record->seen == 1 || record->seen == 2));
}

}  // namespace mscclpp::test
