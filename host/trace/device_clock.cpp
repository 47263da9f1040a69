#include "host/trace/device_clock.hpp"

#include <chrono>
#include <new>
#include <utility>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

std::int64_t now() {
  return static_cast<std::int64_t>(arch::nanoseconds());
}

/// One request and its response.
ClockSample queryClock(ClockSync& exchange, std::uint64_t round) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  const std::int64_t before = now();
  arch::store<arch::Order::Release, arch::Scope::System>(&exchange.request, round);
  while (arch::load<arch::Order::Acquire, arch::Scope::System>(&exchange.response) != round) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(
          "Trace: timed out waiting for the GPU's time; make and collect traces while no kernel occupies the whole GPU",
          ErrorCode::Timeout);
    }
  }
  const std::int64_t after = now();
  return {static_cast<std::int64_t>(exchange.nanoseconds), before + (after - before) / 2, (after - before + 1) / 2};
}

}  // namespace

DeviceClock::DeviceClock(std::shared_ptr<void> memory, std::function<void(ClockSync* exchange)> launch)
    : memory_(std::move(memory)), launch_(std::move(launch)) {}

void DeviceClock::compare() {
  if (!memory_) return;
  const std::lock_guard exchangeLock(exchangeMutex_);
  auto* exchange = new (memory_.get()) ClockSync{};
  launch_(exchange);
  // The response with the shortest round trip is the most accurate. The first one waits for the device to start.
  ClockSample best = queryClock(*exchange, 1);
  for (std::uint64_t round = 2; round <= ClockSync::rounds; ++round) {
    const ClockSample next = queryClock(*exchange, round);
    if (next.error < best.error) best = next;
  }
  const std::lock_guard lock(mapMutex_);
  map_.add(best);
}

ClockMap DeviceClock::map() const {
  const std::lock_guard lock(mapMutex_);
  return map_;
}

}  // namespace mscclpp::detail
