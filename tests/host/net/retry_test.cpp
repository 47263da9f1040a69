// Repeated attempts with a deadline.
#include "host/net/retry.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace mscclpp::detail;
using namespace std::chrono_literals;

TEST_CASE("attempts are repeated until one succeeds") {
  int attempts = 0;
  const auto result = retryUntil(Deadline::after(60s), 2ms, [&]() -> std::optional<int> {
    return ++attempts == 4 ? std::optional(attempts) : std::nullopt;
  });
  CHECK(result == 4);
}

TEST_CASE("the last of the unsuccessful attempts follows the deadline") {
  const Deadline deadline = Deadline::after(30ms);
  bool wasExpired = false;
  CHECK_FALSE(retryUntil(deadline, 2ms, [&] {
    wasExpired = deadline.expired();
    return false;
  }));
  CHECK(wasExpired);
  int attempts = 0;
  CHECK_FALSE(retryUntil(Deadline::after(0ms), 2ms, [&] { return ++attempts < 0; }));
  CHECK(attempts == 1);
}

TEST_CASE("an exception ends the attempts") {
  CHECK_THROWS_AS(retryUntil(Deadline::after(60s), 2ms, []() -> bool { throw std::runtime_error("no"); }),
                  std::runtime_error);
}

TEST_CASE("a long pause ends when the deadline is cancelled") {
  Event cancelled;
  const auto start = Deadline::Clock::now();
  int attempts = 0;
  std::thread canceller([&] { cancelled.set(); });
  // The pauses double: the tenth attempt follows one of half a second, the twentieth one of minutes.
  CHECK_FALSE(retryUntil(Deadline::after(1h).orWhenCancelled(cancelled), 10min, [&] { return ++attempts < 0; }));
  canceller.join();
  CHECK(Deadline::Clock::now() - start < 60s);
}
