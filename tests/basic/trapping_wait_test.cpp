// Waits that trap: they return on success, and a failed wait terminates the process.
#include "mscclpp/basic/trapping_wait.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "death_test.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/packet/ll8.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr WaitSite site{WaitOperation::Unknown, 0, -1, 0, 0};

}  // namespace

TEST_CASE("trapping wait: returns as soon as the attempt succeeds") {
  std::atomic<bool> ready = false;
  std::thread other([&] { ready = true; });
  for (TrappingWait wait : {TrappingWait(), TrappingWait(-1), TrappingWait(100)}) {
    CHECK(wait.until(site, [&](std::uint64_t&) { return ready.load(); }));
  }
  other.join();
}

TEST_CASE("trapping wait: a failed wait terminates the process") {
  const int signal = terminationSignal([] {
    auto wait = TrappingWait::within(1'000'000);
    wait.until(site, [](std::uint64_t&) { return false; });
  });
  CHECK((signal == SIGILL || signal == SIGTRAP || signal == SIGABRT));
  CHECK(terminationSignal([] { arch::trap(); }) == signal);
}

TEST_CASE("packets: MSCCL++-compatible overloads of writing and reading") {
  LL16Packet wide{};
  uint2 pair{};
  CHECK(wide.readOnce(1, pair));  // true: has not arrived
  std::thread writer([&] { wide.write(7u, 8u, 1u); });
  pair = wide.read(1, -1);
  writer.join();
  CHECK(pair.x == 7);
  CHECK(pair.y == 8);
  CHECK_FALSE(wide.readOnce(1, pair));
  CHECK(wide.readOnce(2, pair));

  LL8Packet narrow{};
  std::uint32_t word = 0;
  CHECK(narrow.readOnce(3, word));
  narrow.write(9, 3);
  CHECK(narrow.read(3) == 9);
  CHECK_FALSE(narrow.readOnce(3, word));
  CHECK(word == 9);
}
