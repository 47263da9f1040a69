// Weakened copies of the synchronisation primitives: a lost signal must end in a record, a weaker order in a report of ThreadSanitizer.
#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/races.hpp"
#include "mscclpp/sync/semaphore.hpp"
#include "mscclpp/sync/team_barrier.hpp"

namespace mscclpp::test {
namespace {

/// Two ranks in turn: data to the peer, signal; wait, read. How to signal and to wait is the mutation's.
template <class Signal, class Wait>
std::optional<WaitRecord> passMessages(const Signal& signal, const Wait& wait, int rounds) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(2, 256, 0);
  const auto window = memory.window();
  return backend.run({2, 1, 1}, [&](int rank, const auto&) {
    const auto words = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SemaphoreHandle semaphore{words(rank), words(1 - rank), words(rank) + 1, backend.control(), 200'000'000,
                              rank,        1 - rank};
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
int racesOfWhole(const auto& run) {
  return racesOf([&] { CHECK_FALSE(run()); });
}

const auto signalled = [](SemaphoreHandle& semaphore, int) { semaphore.signal(); };
const auto waited = [](SemaphoreHandle& semaphore) { semaphore.wait(); };

/// Two ranks in rounds: data to the peer, barrier, read, barrier.
template <arch::Order order>
std::optional<WaitRecord> meet() {
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

TEST_CASE("mutants: the real primitives pass the same trial") {
  CHECK(racesOfWhole([] { return passMessages(signalled, waited, 100); }) == 0);
  CHECK(racesOfWhole([] { return meet<arch::Order::AcqRel>(); }) == 0);
}

TEST_CASE("mutants: a dropped signal is waited for until the deadline") {
  const auto record = passMessages(
      [](SemaphoreHandle& semaphore, int round) {
        if (round != 5) semaphore.signal();
      },
      waited, 10);
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
}

TEST_CASE("mutants: a relaxed signal is a race") {
  const auto relaxed = [](SemaphoreHandle& semaphore, int) { semaphore.relaxedSignal(); };
  CHECK((racesOfWhole([&] { return passMessages(relaxed, waited, 100); }) > 0) == findsRaces);
}

TEST_CASE("mutants: a relaxed wait is a race") {
  const auto relaxed = [](SemaphoreHandle& semaphore) { semaphore.relaxedWait(); };
  CHECK((racesOfWhole([&] { return passMessages(signalled, relaxed, 100); }) > 0) == findsRaces);
}

TEST_CASE("mutants: a relaxed barrier is a race") {
  CHECK((racesOfWhole([] { return meet<arch::Order::Relaxed>(); }) > 0) == findsRaces);
}

}  // namespace mscclpp::test
