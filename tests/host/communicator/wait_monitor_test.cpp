#include "mscclpp/host/communicator/wait_monitor.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "tests/host/socketpair_bootstrap.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// What device code does when a wait fails.
void record(WaitControl& control, WaitOutcome outcome) {
  std::uint32_t empty = 0;
  if (std::atomic_ref(control.record.state).compare_exchange_strong(empty, 1)) {
    control.record.outcome = outcome;
    control.record.operation = WaitOperation::Semaphore;
    control.record.rank = 3;
    control.record.peer = 5;
    control.record.block = 17;
    control.record.expected = 42;
    control.record.seen = 41;
    control.record.waitedNanoseconds = 1234567890;
    std::atomic_ref(control.record.state).store(2, std::memory_order_release);
  }
  std::atomic_ref(control.expired).store(1, std::memory_order_release);
}

struct Failure {
  ErrorCode code;
  std::string text;
};

Failure failureOf(const WaitMonitor& monitor) {
  try {
    monitor.check();
  } catch (const Error& error) {
    return {error.getErrorCode(), error.what()};
  }
  return {ErrorCode::InternalError, "nothing was thrown"};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A bootstrap whose ranks fail on request.
class FaultInjectingBootstrap : public SocketpairBootstrap, public FailureDetector {
 public:
  FaultInjectingBootstrap() : SocketpairBootstrap(0, {-1, -1, -1}) {}

  void kill(int rank) {
    std::lock_guard lock(mutex_);
    failure_ = RankFailure{rank, "its connection closed"};
    for (const auto& [subscription, callback] : callbacks_) callback(*failure_);
  }
  void leave(int rank) {
    std::lock_guard lock(mutex_);
    for (const auto& [subscription, callback] : departureCallbacks_) callback(rank);
  }
  std::size_t subscriptions() {
    std::lock_guard lock(mutex_);
    return callbacks_.size() + departureCallbacks_.size();
  }
  std::optional<RankFailure> failure() const override {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  Subscription onFailure(FailureCallback callback) override {
    std::lock_guard lock(mutex_);
    if (failure_) callback(*failure_);
    callbacks_[++last_] = std::move(callback);
    return last_;
  }
  Subscription onDeparture(DepartureCallback callback) override {
    std::lock_guard lock(mutex_);
    departureCallbacks_[++last_] = std::move(callback);
    return last_;
  }
  void unsubscribe(Subscription subscription) noexcept override {
    std::lock_guard lock(mutex_);
    callbacks_.erase(subscription);
    departureCallbacks_.erase(subscription);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  std::map<Subscription, FailureCallback> callbacks_;
  std::map<Subscription, DepartureCallback> departureCallbacks_;
  Subscription last_ = 0;
};

}  // namespace

TEST_CASE("a monitor without a failure") {
  WaitMonitor monitor(DeviceType::CPU);
  REQUIRE(monitor.deviceControl() != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(monitor.deviceControl()) % 64 == 0);
  CHECK(monitor.deviceControl()->abort == 0);
  CHECK(monitor.deviceControl()->expired == 0);
  CHECK_FALSE(monitor.failed());
  monitor.check();
  CHECK_THROWS_AS(WaitMonitor{DeviceType::Unknown}, Error);
}

TEST_CASE("a timed-out wait is reported with all details") {
  WaitMonitor monitor(DeviceType::CPU);
  std::thread device([&] { record(*monitor.deviceControl(), WaitOutcome::Deadline); });
  while (!monitor.failed()) std::this_thread::yield();
  const auto failure = failureOf(monitor);
  device.join();
  CHECK(failure.code == ErrorCode::Timeout);
  for (const char* part :
       {"rank 3", "block 17", "a signal", "rank 5", "expected 42", "saw 41", "1234 ms", "deadline"}) {
    CAPTURE(part);
    CHECK(contains(failure.text, part));
  }
}

TEST_CASE("a wrong call of a collective is invalid usage") {
  WaitMonitor monitor(DeviceType::CPU);
  BoundedWait wait(monitor.deviceControl(), 0);
  wait.fail({WaitOperation::Call, 0, 1, 0, 100}, WaitOutcome::OtherCount, 200);
  const auto failure = failureOf(monitor);
  CHECK(failure.code == ErrorCode::InvalidUsage);
  CHECK(contains(failure.text, "rank 1 calls a collective with 200 elements, rank 0 with 100"));
}

TEST_CASE("a record still being written does not block forever") {
  WaitMonitor monitor(DeviceType::CPU);
  monitor.deviceControl()->record.state = 1;
  monitor.deviceControl()->expired = 1;
  CHECK(failureOf(monitor).code == ErrorCode::Timeout);
}

TEST_CASE("the error gives the reason of the first abort") {
  WaitMonitor monitor(DeviceType::CPU);
  monitor.abort("the first reason");
  monitor.abort("the second reason");
  record(*monitor.deviceControl(), WaitOutcome::Aborted);
  const auto failure = failureOf(monitor);
  CHECK(failure.code == ErrorCode::Aborted);
  CHECK(contains(failure.text, "the first reason (rank 3"));
  WaitMonitor withoutReason(DeviceType::CPU);
  withoutReason.abort();
  withoutReason.abort("a consequence");
  CHECK(contains(failureOf(withoutReason).text, "the communication was aborted"));
}

TEST_CASE("abort ends waits, and the error names it") {
  WaitMonitor monitor(DeviceType::CPU);
  std::thread device([&] {
    auto& control = *monitor.deviceControl();
    while (std::atomic_ref(control.abort).load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    record(control, WaitOutcome::Aborted);
  });
  monitor.abort();
  device.join();
  CHECK(monitor.failed());
  const auto failure = failureOf(monitor);
  CHECK(failure.code == ErrorCode::Aborted);
  CHECK(contains(failure.text, "rank 5"));
}

TEST_CASE("aborting the communicator aborts its monitors, later ones too") {
  Communicator communicator(std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1}));
  WaitMonitor first(communicator, DeviceType::CPU);
  { WaitMonitor gone(communicator, DeviceType::CPU); }
  WaitMonitor unrelated(DeviceType::CPU);
  communicator.abort();
  WaitMonitor later(communicator, DeviceType::CPU);
  CHECK(failureOf(first).code == ErrorCode::Aborted);
  CHECK(failureOf(later).code == ErrorCode::Aborted);
  CHECK_FALSE(unrelated.failed());
}

TEST_CASE("a failed rank ends the waits and is named") {
  auto bootstrap = std::make_shared<FaultInjectingBootstrap>();
  {
    Communicator communicator(bootstrap);
    CHECK(bootstrap->subscriptions() == 2);
    WaitMonitor monitor(communicator, DeviceType::CPU);
    std::thread watcher([&] { bootstrap->kill(2); });
    while (!monitor.failed()) std::this_thread::yield();
    watcher.join();
    CHECK(monitor.deviceControl()->abort != 0);
    record(*monitor.deviceControl(), WaitOutcome::Aborted);
    const auto failure = failureOf(monitor);
    CHECK(failure.code == ErrorCode::RemoteError);
    CHECK(contains(failure.text, "rank 2 failed: its connection closed"));
    CHECK(contains(failure.text, "rank 5"));
    WaitMonitor later(communicator, DeviceType::CPU);
    CHECK(failureOf(later).code == ErrorCode::RemoteError);
  }
  CHECK(bootstrap->subscriptions() == 0);
}

TEST_CASE("a rank that leaves ends the waits for it, and no others") {
  auto bootstrap = std::make_shared<FaultInjectingBootstrap>();
  Communicator communicator(bootstrap);
  WaitMonitor monitor(communicator, DeviceType::CPU);
  const auto waitFor = [&](WaitOperation operation, int peer, int attemptsToSuccess) {
    BoundedWait wait(monitor.deviceControl(), 20'000'000'000);
    int attempts = 0;
    return wait.until(WaitSite{operation, 0, peer, 0, 1},
                      [&](std::uint64_t&) { return ++attempts == attemptsToSuccess; });
  };
  constexpr int longWait = 20 * static_cast<int>(arch::attemptsPerDeadlineCheck);
  constexpr int never = -1;
  bootstrap->leave(2);
  CHECK(monitor.hasLeft(2));
  CHECK_FALSE(monitor.hasLeft(1));
  CHECK_FALSE(monitor.failed());
  CHECK(waitFor(WaitOperation::Semaphore, 1, longWait));
  CHECK(waitFor(WaitOperation::GridBarrier, -1, longWait));
  CHECK(waitFor(WaitOperation::Fifo, 2, longWait));
  CHECK(waitFor(WaitOperation::User, 1, longWait));
  CHECK(waitFor(WaitOperation::User, -1, longWait));
  CHECK(waitFor(WaitOperation::Semaphore, 2, arch::attemptsPerDeadlineCheck + 1));  // signalled before the rank left
  // The ranks of a team may be others than the job's.
  CHECK(waitFor(WaitOperation::Packet, -1, longWait));
  CHECK(waitFor(WaitOperation::Packet, 2, longWait));
  CHECK(waitFor(WaitOperation::TeamBarrier, 2, longWait));
  CHECK_FALSE(monitor.failed());
  monitor.check();
  monitor.setTeamIsJob();
  int peer = 2;
  WaitOperation operation = WaitOperation::Semaphore;
  SUBCASE("of one signal") {}
  SUBCASE("of packets of all ranks") {
    operation = WaitOperation::Packet;
    peer = -1;
  }
  SUBCASE("of a condition of the caller's own") {
    operation = WaitOperation::User;
  }
  CHECK_FALSE(waitFor(operation, peer, never));
  CHECK(monitor.failed());
  const auto failure = failureOf(monitor);
  CHECK(failure.code == ErrorCode::RemoteError);
  CAPTURE(failure.text);
  CHECK(contains(failure.text, "rank 2 has left the job (rank 0, block 0, waited for a "));
}

TEST_CASE("the departure of the last rank of the largest job ends waits too") {
  constexpr int last = 4095;  // of the launcher's limit
  auto bootstrap = std::make_shared<FaultInjectingBootstrap>();
  Communicator communicator(bootstrap);
  WaitMonitor monitor(communicator, DeviceType::CPU);
  bootstrap->leave(last);
  BoundedWait wait(monitor.deviceControl(), 20'000'000'000);
  CHECK_FALSE(wait.until(WaitSite{WaitOperation::Semaphore, 0, last, 0, 1}, [](std::uint64_t&) { return false; }));
  CHECK(contains(failureOf(monitor).text, "rank 4095 has left the job"));
}
