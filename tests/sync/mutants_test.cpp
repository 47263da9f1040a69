// Mutants of the synchronisation primitives: a lost signal must leave a record, and a weaker order be reported by
// ThreadSanitizer.
#include <doctest/doctest.h>

#include "mscclpp/sync/semaphore.hpp"
#include "mscclpp/sync/team_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {
namespace {

/// Two ranks alternate: data to the peer, signal; wait, read. The mutant gives signal and wait. timeout: of a wait, in
/// nanoseconds; reports of races take long.
template <class Signal, class Wait>
std::optional<WaitRecord> passMessages(const Signal& signal, const Wait& wait, int rounds,
                                       std::uint64_t timeout = 20'000'000'000) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(2, 256, 0);
  const auto window = memory.window();
  return backend.run({2, 1, 1}, [&](int rank, const auto&) {
    const auto words = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SemaphoreHandle semaphore{{},      words(rank), words(1 - rank), words(rank) + 1, backend.control(),
                              timeout, rank,        1 - rank};
    std::uint64_t sum = 0;
    for (int round = 0; round < rounds; ++round) {
      if (round % 2 == rank) {
        words(1 - rank)[8] = static_cast<std::uint64_t>(round);
        signal(semaphore, round);
      } else {
        wait(semaphore);
        sum += words(rank)[8];
      }
    }
    words(rank)[16] = sum;
  });
}

/// For runs that end without a record.
int countRacesOfCompleteRun(const auto& run) {
  return countRaces([&] { CHECK_FALSE(run()); });
}

const auto realSignal = [](SemaphoreHandle& semaphore, int) { semaphore.signal(); };
const auto realWait = [](SemaphoreHandle& semaphore) { semaphore.wait(); };

/// Two ranks in rounds: data to the peer, barrier, read, barrier.
template <arch::Order order>
std::optional<WaitRecord> runBarrierRounds() {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(2, 256, 0);
  const auto window = memory.window();
  const auto policy = backend.wait();
  return backend.run({2, 1, 1}, [&](int rank, const auto& grid) {
    const auto words = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    TeamBarrier<> barrier{Team<>(rank, 2), window, words(rank) + 4};
    auto wait = policy;
    std::uint64_t sum = 0;
    for (int round = 0; round < 20; ++round) {
      words(1 - rank)[8] = static_cast<std::uint64_t>(round);
      barrier.sync<order>(grid.block(), wait);
      sum += words(rank)[8];
      barrier.sync<order>(grid.block(), wait);
    }
    words(rank)[16] = sum;
  });
}

}  // namespace

TEST_CASE("mutants: the originals pass the same test") {
  CHECK(countRacesOfCompleteRun([] { return passMessages(realSignal, realWait, 100); }) == 0);
  CHECK(countRacesOfCompleteRun([] { return runBarrierRounds<arch::Order::AcqRel>(); }) == 0);
}

TEST_CASE("mutants: a wait for a dropped signal times out") {
  const auto record = passMessages(
      [](SemaphoreHandle& semaphore, int round) {
        if (round != 5) semaphore.signal();
      },
      realWait, 10, 200'000'000);
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
}

TEST_CASE("mutants: a relaxed signal is a race") {
  const auto relaxed = [](SemaphoreHandle& semaphore, int) { semaphore.relaxedSignal(); };
  CHECK((countRacesOfCompleteRun([&] { return passMessages(relaxed, realWait, 100); }) > 0) == detectsRaces);
}

TEST_CASE("mutants: a relaxed wait is a race") {
  const auto relaxed = [](SemaphoreHandle& semaphore) { semaphore.relaxedWait(); };
  CHECK((countRacesOfCompleteRun([&] { return passMessages(realSignal, relaxed, 100); }) > 0) == detectsRaces);
}

TEST_CASE("mutants: a relaxed barrier is a race") {
  CHECK((countRacesOfCompleteRun([] { return runBarrierRounds<arch::Order::Relaxed>(); }) > 0) == detectsRaces);
}

}  // namespace mscclpp::test
