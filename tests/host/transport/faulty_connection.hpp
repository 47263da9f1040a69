// A transport with the faults of a network: it delays operations, reorders those that may be reordered, and fails on
// request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/transport/connection_base.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp::test {

/// The faults to inject. Operations are numbered from 1; 0 means never.
struct Faults {
  static constexpr std::uint64_t never = 0;

  /// Each operation takes effect after one to two times this delay.
  std::chrono::microseconds delay{0};
  /// Writes between two updates take effect in any order.
  bool reorder = false;
  /// Reorders updates too, which no transport may do. Tests of ordering must detect it.
  bool reorderUpdates = false;
  /// This operation fails to start: the call throws, and so do all later ones.
  std::uint64_t rejectAt = never;
  /// This operation is lost. As on a reliable network connection, no later operation takes effect, and later calls
  /// fail.
  std::uint64_t dropAt = never;
  /// From this operation on nothing completes, without an error.
  std::uint64_t stallFrom = never;
  /// Nothing moves before resume() or executeNext().
  bool paused = false;
  unsigned seed = 1;
};

/// Issues to another connection from a separate thread, so the source is read late, as by a network device. The inner
/// connection is not used by other threads.
class FaultyConnection : public detail::ConnectionBase {
 public:
  FaultyConnection(Connection inner, const Endpoint& local, const Endpoint& remote, const Faults& faults)
      : ConnectionBase(inner.context(), local, remote),
        inner_(std::move(inner)),
        faults_(faults),
        allowed_(faults.paused ? 0 : all),
        random_(faults.seed),
        thread_([this] { run(); }) {}

  ~FaultyConnection() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void resume() {
    {
      std::lock_guard lock(mutex_);
      allowed_ = all;
    }
    changed_.notify_all();
  }
  /// Executes one more operation, and returns when it has taken effect.
  void executeNext() {
    std::unique_lock lock(mutex_);
    allowed_ = history_.size() + 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return history_.size() == allowed_ || failure_; });
  }
  /// The numbers of the operations in the order in which they took effect.
  std::vector<std::uint64_t> history() {
    std::lock_guard lock(mutex_);
    return history_;
  }

  std::uint64_t completed() override {
    std::lock_guard lock(mutex_);
    if (failure_ && completed_ < issued()) std::rethrow_exception(failure_);
    return completed_;
  }

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override {
    start({issued() + 1, Clock::now(), dst, dstOffset, src, srcOffset, size, std::nullopt});
  }
  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                   std::uint64_t newValue) override {
    start({issued() + 1, Clock::now(), dst, dstOffset, {}, 0, 0, newValue});
  }
  std::string description() const override { return "a faulty path"; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

  struct Operation {
    std::uint64_t number;
    Clock::time_point due;
    RegisteredMemory dst;
    std::uint64_t dstOffset;
    RegisteredMemory src;
    std::uint64_t srcOffset;
    std::uint64_t size;
    std::optional<std::uint64_t> value;  // of an update
  };

  static std::exception_ptr errorAbout(std::uint64_t number, const char* what) {
    return std::make_exception_ptr(
        Error("operation " + std::to_string(number) + " over a faulty path " + what, ErrorCode::RemoteError));
  }

  void start(Operation operation) {
    std::lock_guard lock(mutex_);
    if (operation.number == faults_.rejectAt && !failure_) failure_ = errorAbout(operation.number, "was refused");
    if (failure_) std::rethrow_exception(failure_);
    if (faults_.delay.count() > 0) {
      const auto extra = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(faults_.delay.count()));
      operation.due += faults_.delay + std::chrono::microseconds(extra);
    }
    waiting_.push_back(std::move(operation));
    changed_.notify_all();
  }

  // The candidates for the next operation: the first, and with `reorder` the writes up to the next update.
  std::list<Operation>::iterator choose() {
    auto chosen = waiting_.begin();
    if (!faults_.reorder && !faults_.reorderUpdates) return chosen;
    std::uint64_t candidates = 0;
    for (auto each = waiting_.begin(); each != waiting_.end() && (!each->value || faults_.reorderUpdates); ++each) {
      if (random_() % ++candidates == 0) chosen = each;
    }
    return chosen;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock,
                    [this] { return stopping_ || (history_.size() < allowed_ && !waiting_.empty() && !failure_); });
      if (stopping_) return;
      const auto next = choose();
      if (next->number == faults_.dropAt) {
        failure_ = errorAbout(next->number, "was lost");
        continue;
      }
      if (faults_.stallFrom != Faults::never && next->number >= faults_.stallFrom) {
        changed_.wait(lock, [this] { return stopping_; });
        return;
      }
      if (changed_.wait_until(lock, next->due, [this] { return stopping_; })) return;
      const Operation operation = std::move(*next);
      waiting_.erase(next);
      lock.unlock();
      std::exception_ptr failure;
      try {
        execute(operation);
      } catch (const BaseError&) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        failure_ = failure;
        continue;
      }
      history_.push_back(operation.number);
      changed_.notify_all();
      arrived_.insert(operation.number);
      while (!arrived_.empty() && *arrived_.begin() == completed_ + 1) {
        arrived_.erase(arrived_.begin());
        ++completed_;
      }
    }
  }

  void execute(const Operation& operation) {
    if (operation.value) {
      std::uint64_t ignored = 0;
      inner_.updateAndSync(operation.dst, operation.dstOffset, &ignored, *operation.value);
    } else {
      inner_.write(operation.dst, operation.dstOffset, operation.src, operation.srcOffset, operation.size);
    }
    inner_.flush();
  }

  Connection inner_;
  const Faults faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t allowed_;  // number of operations that may take effect
  std::mt19937_64 random_;
  std::list<Operation> waiting_;
  std::set<std::uint64_t> arrived_;  // beyond completed_
  std::vector<std::uint64_t> history_;
  std::uint64_t completed_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

/// The two ends of a connection within one context; the first end is faulty.
struct FaultyPair {
  FaultyPair(std::shared_ptr<Context> context, Transport transport, const Faults& faults) {
    const EndpointConfig config{transport, DeviceType::CPU};
    const Endpoint first = context->createEndpoint(config);
    const Endpoint second = context->createEndpoint(config);
    const Connection inner = context->connect(first, Endpoint::deserialize(second.serialize()));
    faulty = std::make_shared<FaultyConnection>(inner, first, second, faults);
    here = Connection(faulty);
    there = context->connect(second, Endpoint::deserialize(first.serialize()));
  }

  std::shared_ptr<FaultyConnection> faulty;
  Connection here;
  Connection there;
};

}  // namespace mscclpp::test
