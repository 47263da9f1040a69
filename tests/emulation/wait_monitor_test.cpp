// Failed waits of emulated ranks as exceptions.
#include "mscclpp/emulation/wait_monitor.hpp"

#include <doctest/doctest.h>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

TEST_CASE("emulation wait monitor: nothing is thrown while all waits succeed") {
  emulation::WaitMonitor monitor;
  monitor.check();
  emulation::launch({.ranks = 2, .threads = 2}, [&](int rank, const auto&) {
    BoundedWait wait(monitor.deviceControl(), 1'000'000'000);
    CHECK(wait.until({WaitOperation::User, rank, -1, 0, 0}, [](std::uint64_t&) { return true; }));
  });
  monitor.check();
}

TEST_CASE("emulation wait monitor: the record of the wait that failed first is thrown after the launch") {
  emulation::WaitMonitor monitor;
  emulation::launch({.ranks = 2}, [&](int rank, const auto&) {
    BoundedWait wait(monitor.deviceControl(), 1'000'000);
    if (rank == 1) {
      wait.until({WaitOperation::Semaphore, rank, 0, 0, 7}, [](std::uint64_t& seen) {
        seen = 6;
        return false;
      });
    }
  });
  CHECK_THROWS_WITH_AS(monitor.check(), doctest::Contains("rank 1, block 0, waited for a signal of rank 0 past its"),
                       emulation::FailedWait);
  try {
    monitor.check();
    FAIL("it stays failed");
  } catch (const emulation::FailedWait& failure) {
    CHECK(failure.record().expected == 7);
    CHECK(failure.record().seen == 6);
  }
}

TEST_CASE("emulation wait monitor: a wrong call") {
  emulation::WaitMonitor monitor;
  BoundedWait wait(monitor.deviceControl(), 0);
  wait.fail({WaitOperation::Call, 0, 1, 0, 100}, WaitOutcome::OtherCount, 200);
  CHECK(wait.failed());
  CHECK_THROWS_WITH_AS(monitor.check(),
                       doctest::Contains("rank 1 calls a collective with 200 elements, rank 0 with 100"), InvalidCall);
}
