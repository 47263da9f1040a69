// Weakened copies of the barrier through the switch: a lost signal must end in a record, a weaker order in a report of ThreadSanitizer.
#include <doctest/doctest.h>

#include "backend/multicast.hpp"
#include "backend/races.hpp"
#include "mscclpp/sync/switch_semaphore.hpp"

namespace mscclpp::test {
namespace {

constexpr int ranks = 3;

/// Three ranks in rounds: data to everyone, barrier, read, barrier. How to signal and to wait is the mutation's.
template <class Signal, class Wait>
std::optional<WaitRecord> meet(const Signal& signal, const Wait& wait, std::uint64_t timeout = waitTimeout) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, 256, 0);
  const auto window = memory.window();
  EmulatedMulticast multicast(window, ranks);
  return backend.run({ranks, 1, 1}, [&](int rank, const auto&) {
    const auto words = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SwitchSemaphoreHandle semaphore{
        multicast.address(), words(rank), words(rank) + 4, backend.control(), timeout, ranks, rank};
    std::uint64_t sum = 0;
    for (int round = 0; round < 20; ++round) {
      for (int r = 0; r < ranks; ++r) words(r)[8 + rank] = static_cast<std::uint64_t>(round);
      signal(semaphore, rank, round);
      if (!wait(semaphore)) return;
      for (int r = 0; r < ranks; ++r) sum += words(rank)[8 + r];
      signal(semaphore, rank, -1);
      if (!wait(semaphore)) return;
    }
    words(rank)[16] = sum;
  });
}

const auto signalled = [](SwitchSemaphoreHandle& semaphore, int, int) { semaphore.signal(); };
const auto waited = [](SwitchSemaphoreHandle& semaphore) { return semaphore.wait(); };

}  // namespace

TEST_CASE("switch mutants: the real barrier passes the same trial") {
  CHECK(racesOf([] { CHECK_FALSE(meet(signalled, waited)); }) == 0);
}

TEST_CASE("switch mutants: a dropped signal is waited for until the deadline") {
  const auto record = meet(
      [](SwitchSemaphoreHandle& semaphore, int rank, int round) {
        if (rank != 1 || round != 5) semaphore.signal();
      },
      waited, 200'000'000);
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
  CHECK(record->seen < record->expected);
}

TEST_CASE("switch mutants: a relaxed signal is a race") {
  const auto relaxed = [](SwitchSemaphoreHandle& semaphore, int, int) { semaphore.relaxedSignal(); };
  CHECK((racesOf([&] { CHECK_FALSE(meet(relaxed, waited)); }) > 0) == findsRaces);
}

TEST_CASE("switch mutants: a relaxed wait is a race") {
  const auto relaxed = [](SwitchSemaphoreHandle& semaphore) { return semaphore.relaxedWait(); };
  CHECK((racesOf([&] { CHECK_FALSE(meet(signalled, relaxed)); }) > 0) == findsRaces);
}

TEST_CASE("switch mutants: a wait for one signal too few is a race") {
  const auto hasty = [](SwitchSemaphoreHandle& semaphore) {
    SwitchSemaphoreHandle other = semaphore;
    std::uint64_t generation = *semaphore.barrierGen;
    other.barrierGen = &generation;
    other.nRanks = ranks - 1;
    *semaphore.barrierGen += ranks;
    return other.wait();
  };
  CHECK((racesOf([&] { CHECK_FALSE(meet(signalled, hasty)); }) > 0) == findsRaces);
}

}  // namespace mscclpp::test
