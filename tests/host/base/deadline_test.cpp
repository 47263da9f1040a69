// Deadlines, and the events that cancel them.
#include "host/base/deadline.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <thread>

using namespace mscclpp::detail;
using namespace std::chrono_literals;

namespace {

bool isReadable(const Event& event) {
  pollfd entry{event.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a deadline expires after its duration, and not before") {
  const auto start = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(20ms);
  while (!deadline.expired()) deadline.sleep(1h);
  CHECK(Deadline::Clock::now() - start >= 20ms);
  CHECK(deadline.pollTimeout() == 0);
  CHECK(deadline.extendedBy(1h).pollTimeout() > 0);
  CHECK(Deadline::after(1h).limitedTo(0ms).expired());
  CHECK(Deadline::after(1h).pollTimeout(5ms) == 5);
}

TEST_CASE("an event stays set, and is readable from then on") {
  Event event;
  CHECK_FALSE(event.isSet());
  CHECK_FALSE(isReadable(event));
  event.set();
  event.set();
  CHECK(event.isSet());
  CHECK(isReadable(event));
  CHECK(isReadable(event));
}

TEST_CASE("cancelling a deadline wakes a thread that waits until then") {
  Event cancelled;
  const auto start = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(1h).orWhenCancelled(cancelled);
  // Without a limit: a thread that is not woken does not look at the event either.
  std::thread sleeping([&] {
    while (!deadline.extendedBy(1h).expired()) deadline.extendedBy(1h).sleep(1h);
  });
  std::thread polling([&] {
    pollfd entries[] = {{-1, POLLIN, 0}, deadline.cancelEntry()};
    while (!deadline.expired()) ::poll(entries, std::size(entries), deadline.pollTimeout());
  });
  CHECK_FALSE(deadline.expired());
  CHECK(deadline.pollTimeout() > 1'000'000);
  cancelled.set();
  sleeping.join();
  polling.join();
  CHECK(deadline.expired());
  CHECK(deadline.pollTimeout() == 0);
  CHECK(Deadline::Clock::now() - start < 60s);
}

TEST_CASE("an event set in a forked child does not wake the parent") {
  Event event;
  const pid_t child = ::fork();
  if (child == 0) {
    event.set();
    ::_exit(event.isSet() ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(event.isSet());
  CHECK_FALSE(isReadable(event));
}
