// Cases of host/proxy/proxy.hpp: custom handlers, starts and stops in any order, and failures rethrown to the owner.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <thread>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/proxy/proxy.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

inline Device proxyDevice() {
  return Backend<>::onGpu ? Device(DeviceType::GPU, 0) : Device(DeviceType::CPU);
}

inline ProxyOptions proxyOptions(int fifoSize = 16, int fifos = 1) {
  return ProxyOptions{.thread = {.device = proxyDevice()}, .fifos = fifos, .fifoSize = fifoSize};
}

enum class Sync { None, WithLastPush };

/// One thread pushes first, first + 1, ...
struct PushRangeBody {
  FifoHandle fifo;
  std::uint64_t first;
  int count;
  Sync sync;
  std::uint64_t* synced;  ///< rank 0's window; incremented if the sync succeeds

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.blockIndex() != 0 || grid.block().rank() != 0) return;
    auto handle = fifo;
    std::uint64_t position = 0;
    for (int i = 0; i < count; ++i) position = handle.push(ProxyTrigger{first + static_cast<std::uint64_t>(i), 0});
    if (sync == Sync::WithLastPush) *synced += handle.sync(position);
  }
};

/// Launches a kernel that pushes into a proxy's FIFO. Returns the number of syncs that succeeded.
template <class ProxyType>
std::uint64_t pushTo(const ProxyType& proxy, std::uint64_t first, int count, Sync sync = Sync::None, int fifo = 0) {
  Backend<> backend;
  auto memory = backend.allocate(1, 64, 0);
  backend.run({1, 1, 1}, PushRangeBody{proxy.fifo(fifo)->deviceHandle(), first, count, sync,
                                       reinterpret_cast<std::uint64_t*>(memory.window().at(0))});
  return memory.template read<std::uint64_t>(0)[0];
}

template <class Predicate>
bool eventually(const Predicate& predicate) {
  const auto start = arch::nanoseconds();
  while (!predicate()) {
    if (arch::nanoseconds() - start > waitTimeout) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_CASE("proxy: a handler that returns nothing serves custom requests") {
  int handled[3] = {};
  int others = 0;
  bool initialised = false;
  Proxy proxy(
      [&](ProxyTrigger trigger) {
        if (trigger.fst == 1) {
          ++handled[0];
        } else if (trigger.fst == 2) {
          ++handled[1];
        } else if (trigger.fst == 0xdeadbeef) {
          ++handled[2];
        } else {
          ++others;
        }
      },
      ProxyOptions{.thread = {.device = proxyDevice(), .threadInit = [&] { initialised = true; }}});
  proxy.start();
  CHECK(pushTo(proxy, 1, 2) == 0);
  CHECK(pushTo(proxy, 0xdeadbeef, 1, Sync::WithLastPush) == 1);
  proxy.stop();
  CHECK(initialised);
  CHECK(handled[0] == 1);
  CHECK(handled[1] == 1);
  CHECK(handled[2] == 1);
  CHECK(others == 0);
}

TEST_CASE("proxy: MSCCL++'s handler type, and Stop") {
  std::vector<std::uint64_t> seen;
  const ProxyHandler handler = [&](ProxyTrigger trigger) {
    seen.push_back(trigger.fst);
    return trigger.fst == 12 ? ProxyHandlerResult::Stop : ProxyHandlerResult::Continue;
  };
  Proxy proxy(handler, proxyOptions());
  pushTo(proxy, 10, 5);  // before the start: they stay queued
  CHECK(seen.empty());
  proxy.start(true);
  CHECK(eventually([&] { return !proxy.running(); }));
  CHECK(seen == std::vector<std::uint64_t>{10, 11, 12});
  proxy.start();  // continues after the trigger whose handler returned Stop
  proxy.stop();
  CHECK(seen == std::vector<std::uint64_t>{10, 11, 12, 13, 14});
}

TEST_CASE("proxy: a stop handles all pushed triggers, and a start continues") {
  std::atomic<std::uint64_t> sum = 0;
  Proxy proxy([&](const ProxyTrigger& trigger) { sum += trigger.fst; }, proxyOptions(512));
  std::uint64_t expected = 0;
  for (int round = 0; round < 20; ++round) {
    if (round % 2 == 0) proxy.start(round % 4 == 0);
    pushTo(proxy, 1, 100);
    expected += 5050;
    if (round % 2 == 1) proxy.start();
    proxy.start();  // again: no effect
    proxy.stop();
    proxy.stop();
    CHECK(sum == expected);
    CHECK_FALSE(proxy.running());
  }
}

TEST_CASE("proxy: each of several FIFOs keeps its order") {
  std::vector<std::uint64_t> seen[3];
  bool inOrder = true;
  auto options = proxyOptions(8, 3);
  Proxy proxy(
      [&](const ProxyTrigger& trigger, TriggerPosition from) {
        auto& own = seen[from.fifo];
        inOrder = inOrder && from.position == own.size();
        own.push_back(trigger.fst);
      },
      options);
  proxy.start();
  std::vector<std::thread> pushers;
  for (int fifo = 0; fifo < 3; ++fifo) {
    pushers.emplace_back([&, fifo] {
      CHECK(pushTo(proxy, static_cast<std::uint64_t>(fifo) * 1000, 200, Sync::WithLastPush, fifo) == 1);
    });
  }
  for (auto& pusher : pushers) pusher.join();
  proxy.stop();
  CHECK(inOrder);
  for (int fifo = 0; fifo < 3; ++fifo) {
    REQUIRE(seen[fifo].size() == 200);
    for (int i = 0; i < 200; ++i) CHECK(seen[fifo][i] == static_cast<std::uint64_t>(fifo * 1000 + i));
  }
  CHECK_THROWS_AS(proxy.fifo(3), Error);
  CHECK_THROWS_AS(proxy.fifo(-1), Error);
  CHECK_THROWS_AS(Proxy([](ProxyTrigger) {}, proxyOptions(8, 0)), Error);
}

TEST_CASE("proxy: an exception of a handler is rethrown to the owner, and ends the waits of kernels") {
  Proxy proxy(
      [](const ProxyTrigger& trigger) {
        if (trigger.fst == 3) throw Error("the third is bad", ErrorCode::InvalidUsage);
      },
      proxyOptions());
  WaitMonitor other(proxyDevice().type);
  const auto watched = std::make_shared<WaitMonitor>(proxyDevice().type);
  proxy.abortOnFailure(watched);
  proxy.check();
  proxy.start();
  CHECK(pushTo(proxy, 1, 2, Sync::WithLastPush) == 1);
  const auto start = arch::nanoseconds();
  CHECK(pushTo(proxy, 3, 1, Sync::WithLastPush) == 0);  // far sooner than the wait's timeout of 30 s
  CHECK(arch::nanoseconds() - start < 2 * waitTimeout);
  CHECK_THROWS_WITH_AS(proxy.check(), doctest::Contains("the third is bad"), Error);
  CHECK_THROWS_AS(proxy.stop(), Error);
  CHECK_FALSE(proxy.running());
  CHECK_THROWS_WITH_AS(watched->check(), doctest::Contains("the proxy ended: the third is bad (mscclpp"), Error);
  CHECK_FALSE(other.failed());
  const auto late = std::make_shared<WaitMonitor>(proxyDevice().type);
  proxy.abortOnFailure(late);
  CHECK_THROWS_WITH_AS(late->check(), doctest::Contains("the proxy ended: the third is bad (mscclpp"), Error);
  CHECK_THROWS_WITH_AS(proxy.start(), doctest::Contains("failed before"), Error);
}

TEST_CASE("proxy: a null handler and too many FIFOs are rejected") {
  const auto isNull = doctest::Contains("must not be null");
  CHECK_THROWS_WITH_AS(Proxy(ProxyHandler(), proxyOptions()), isNull, Error);
  void (*function)(ProxyTrigger) = nullptr;
  CHECK_THROWS_WITH_AS(Proxy(function, proxyOptions()), isNull, Error);
  CHECK_NOTHROW(Proxy(ProxyHandler([](ProxyTrigger) { return ProxyHandlerResult::Stop; }), proxyOptions()));
  const auto tooMany = doctest::Contains("from 1 to 4096");
  CHECK_THROWS_WITH_AS(Proxy([](ProxyTrigger) {}, proxyOptions(8, ProxyOptions::maxFifos + 1)), tooMany, Error);
  CHECK_THROWS_WITH_AS(ProxyService(ProxyServiceOptions{.thread = proxyOptions().thread, .fifos = INT_MAX}), tooMany,
                       Error);
}

TEST_CASE("proxy: an exception during start is rethrown to the owner") {
  auto options = proxyOptions();
  options.thread.threadInit = [] { throw Error("no start today", ErrorCode::SystemError); };
  Proxy proxy([](ProxyTrigger) {}, options);
  CHECK_THROWS_WITH_AS(proxy.start(true), doctest::Contains("no start today"), Error);
  CHECK_THROWS_AS(proxy.check(), Error);
}

TEST_CASE("proxy: a stop does not wait forever if requests keep arriving") {
  std::atomic<bool> leave = false;
  auto options = proxyOptions();
  options.thread.stopTimeout = std::chrono::milliseconds(50);
  options.progress = [&] { return !leave.load(); };  // progress that never ends
  Proxy proxy([](ProxyTrigger) {}, options);
  proxy.start(true);
  CHECK_THROWS_WITH_AS(proxy.stop(), doctest::Contains("50 ms"), Error);
  leave = true;
}

TEST_CASE("proxy: stop from inside a handler does not wait for itself") {
  Proxy* self = nullptr;
  std::atomic<int> handled = 0;
  Proxy proxy(
      [&](ProxyTrigger) {
        ++handled;
        self->stop();
      },
      proxyOptions());
  self = &proxy;
  pushTo(proxy, 1, 3);
  proxy.start();
  CHECK(eventually([&] { return !proxy.running(); }));
  CHECK(handled == 3);
}

TEST_CASE("proxy: starts and stops by several threads at once all return") {
  Proxy proxy([](ProxyTrigger) {}, proxyOptions());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&proxy, starts = i % 2 == 0] {
      for (int n = 0; n < (Backend<>::onGpu ? 1000 : 100000); ++n) starts ? proxy.start() : proxy.stop();
    });
  }
  for (auto& thread : threads) thread.join();
  proxy.stop();
  CHECK_FALSE(proxy.running());
}

TEST_CASE("proxy: a handler may call start on the running proxy, even while another thread stops it") {
  Proxy* self = nullptr;
  std::atomic<bool> stopping = false;
  Proxy proxy(
      [&](ProxyTrigger) {
        for (int after = 0; after < 50; after += stopping ? 1 : 0) {
          self->start(true);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      },
      proxyOptions());
  self = &proxy;
  pushTo(proxy, 1, 1);
  proxy.start();
  stopping = true;
  proxy.stop();
  CHECK_FALSE(proxy.running());
}

TEST_CASE("proxy: a start after a stop from inside a handler is not lost") {
  Proxy* self = nullptr;
  std::atomic<bool> told = false;
  std::atomic<bool> starting = false;
  std::atomic<bool> left = false;
  Proxy proxy(
      [&](const ProxyTrigger&) {
        self->stop();
        told = true;
        eventually([&] { return starting.load(); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the start usually comes first
        left = true;
      },
      proxyOptions());
  self = &proxy;
  pushTo(proxy, 1, 1);
  proxy.start();
  CHECK(eventually([&] { return told.load(); }));
  starting = true;
  proxy.start(true);
  CHECK(left);
  CHECK(proxy.running());
  proxy.stop();
}

TEST_CASE("proxy: its thread blocks the application's signals") {
  sigset_t blocked;
  auto options = proxyOptions();
  options.thread.threadInit = [&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); };
  Proxy proxy([](ProxyTrigger) {}, options);
  proxy.start(true);
  proxy.stop();
  CHECK(sigismember(&blocked, SIGTERM) == 1);
}

TEST_CASE("proxy: an exception that no caller received is logged by the destructor, others are not") {
  std::vector<std::string> lines;
  setLogHandler([&](LogLevel, LogSubsystem, const std::string& message) { lines.push_back(message); });
  for (const bool isCaught : {true, false}) {
    auto options = proxyOptions();
    options.thread.threadInit = [] { throw 42; };
    Proxy proxy([](ProxyTrigger) {}, options);
    proxy.start();
    CHECK(eventually([&] { return !proxy.running(); }));
    if (isCaught) CHECK_THROWS_AS(proxy.stop(), int);
    proxy.shutdown();
    proxy.shutdown();
  }
  setLogHandler({});
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("not a std::exception") != std::string::npos);
}

TEST_CASE("proxy: a proxy that sleeps while idle wakes up, and its destructor joins its thread") {
  std::atomic<int> handled = 0;
  {
    auto options = proxyOptions();
    options.thread.sleepAfter = std::chrono::microseconds(100);
    Proxy proxy([&](ProxyTrigger) { ++handled; }, options);
    proxy.start(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(pushTo(proxy, 1, 3, Sync::WithLastPush) == 1);
    pushTo(proxy, 1, 2);
  }
  CHECK(handled == 5);  // the destructor stops as stop() does
}

TEST_CASE("proxy: a FIFO with other owners outlives its proxy") {
  std::shared_ptr<Fifo> fifo;
  {
    Proxy proxy([](ProxyTrigger) {}, proxyOptions());
    fifo = proxy.fifo();
  }
  ProxyTrigger trigger;
  CHECK_FALSE(fifo->poll(trigger));
}

}  // namespace mscclpp::test
