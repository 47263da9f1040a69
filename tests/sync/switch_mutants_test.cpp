// Mutants of the barrier through the switch: a lost signal must leave a record, and a weaker order be reported by
// ThreadSanitizer.
#include <doctest/doctest.h>

#include "mscclpp/sync/switch_semaphore.hpp"
#include "tests/backend/multicast.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {
namespace {

constexpr int ranks = 3;

/// Three ranks, in rounds: data to all ranks, barrier, read, barrier. The mutant gives signal and wait.
template <class Signal, class Wait>
std::optional<WaitRecord> runBarrierRounds(const Signal& signal, const Wait& wait,
                                           std::uint64_t timeout = waitTimeout) {
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, 256, 0);
  const auto window = memory.window();
  EmulatedMulticast multicast(window, ranks);
  return backend.run({ranks, 1, 1}, [&](int rank, const auto&) {
    const auto words = [&](int r) { return reinterpret_cast<std::uint64_t*>(window.at(r)); };
    SwitchSemaphoreHandle semaphore{
        {}, multicast.address(), words(rank), words(rank) + 4, backend.control(), timeout, ranks, rank, nullptr};
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

const auto realSignal = [](SwitchSemaphoreHandle& semaphore, int, int) { semaphore.signal(); };
const auto realWait = [](SwitchSemaphoreHandle& semaphore) { return semaphore.wait(); };

}  // namespace

TEST_CASE("switch mutants: the original passes the same test") {
  CHECK(countRaces([] { CHECK_FALSE(runBarrierRounds(realSignal, realWait)); }) == 0);
}

TEST_CASE("switch mutants: a wait for a dropped signal times out") {
  const auto record = runBarrierRounds(
      [](SwitchSemaphoreHandle& semaphore, int rank, int round) {
        if (rank != 1 || round != 5) semaphore.signal();
      },
      realWait, 200'000'000);
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
  CHECK(record->seen < record->expected);
}

TEST_CASE("switch mutants: a relaxed signal is a race") {
  const auto relaxed = [](SwitchSemaphoreHandle& semaphore, int, int) { semaphore.relaxedSignal(); };
  CHECK((countRaces([&] { CHECK_FALSE(runBarrierRounds(relaxed, realWait)); }) > 0) == detectsRaces);
}

TEST_CASE("switch mutants: a relaxed wait is a race") {
  const auto relaxed = [](SwitchSemaphoreHandle& semaphore) { return semaphore.relaxedWait(); };
  CHECK((countRaces([&] { CHECK_FALSE(runBarrierRounds(realSignal, relaxed)); }) > 0) == detectsRaces);
}

TEST_CASE("switch mutants: a wait that expects one signal too few is a race") {
  const auto tooFewSignals = [](SwitchSemaphoreHandle& semaphore) {
    SwitchSemaphoreHandle other = semaphore;
    std::uint64_t generation = *semaphore.barrierGen;
    other.barrierGen = &generation;
    other.nRanks = ranks - 1;
    *semaphore.barrierGen += ranks;
    return other.wait();
  };
  CHECK((countRaces([&] { CHECK_FALSE(runBarrierRounds(realSignal, tooFewSignals)); }) > 0) == detectsRaces);
}

}  // namespace mscclpp::test
