// Cases of sync/fifo.hpp with its owner, host/proxy/fifo.hpp: triggers arrive once, complete and in order, for any
// number of pushing threads and a full FIFO.
#pragma once

#include <doctest/doctest.h>

#include <set>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/proxy/fifo.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class BackendType>
constexpr Device fifoDevice() {
  return BackendType::onGpu ? Device(DeviceType::GPU, 0) : Device(DeviceType::CPU);
}

template <class Trigger>
BasicFifoHandle<Trigger> handleOf(const BasicFifo<Trigger>& fifo, WaitControl* control,
                                  std::uint64_t timeout = waitTimeout) {
  auto handle = fifo.deviceHandle();
  handle.waitControl = control;
  handle.waitTimeout = timeout;
  handle.rank = 7;
  return handle;
}

/// The n-th trigger of a pushing thread; all of its bits depend on both.
template <class Trigger>
MSCCLPP_HOST_DEVICE Trigger triggerOf(std::uint64_t pusher, std::uint64_t n) {
  const std::uint64_t a = pusher << 32 | n;
  const std::uint64_t b = (a * 0x9e3779b97f4a7c15u) & ~triggerPhaseBit;
  if constexpr (sizeof(Trigger) == sizeof(ProxyTrigger)) {
    return Trigger{a, b};
  } else {
    Trigger trigger;
    trigger.size = a;
    trigger.srcOffset = b;
    trigger.dstOffset = ~a;
    trigger.srcMemory = static_cast<MemoryId>(b);
    trigger.dstMemory = static_cast<MemoryId>(~b);
    trigger.semaphore = static_cast<SemaphoreId>(b >> 7);
    trigger.type = static_cast<std::uint32_t>(b >> 33);
    return trigger;
  }
}

template <class Trigger>
std::uint64_t numberOf(const Trigger& trigger) {
  if constexpr (sizeof(Trigger) == sizeof(ProxyTrigger)) {
    return trigger.fst;
  } else {
    return trigger.size;
  }
}

template <class Trigger>
bool isIntact(const Trigger& trigger) {
  const std::uint64_t number = numberOf(trigger);
  const Trigger expected = triggerOf<Trigger>(number >> 32, number & 0xffffffff);
  for (int i = 0; i < Trigger::words; ++i) {
    const Word128 a = trigger.word(i);
    const Word128 b = expected.word(i);
    if (a.lo != b.lo || (a.hi & ~triggerPhaseBit) != (b.hi & ~triggerPhaseBit)) return false;
  }
  return true;
}

/// How the threads of a launch push.
enum class PushGranularity { OneThread, EveryThread, Warps };

template <class Trigger, ReleaseScope releaseScope>
struct PushBody {
  BasicFifoHandle<Trigger> fifo;
  PushGranularity granularity;
  int pushes;
  std::uint64_t* failures;  ///< of rank 0's window

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto handle = fifo;
    const auto block = grid.block();
    const int thread = grid.blockIndex() * block.size() + block.rank();
    if (granularity == PushGranularity::OneThread && thread != 0) return;
    std::uint64_t last = 0;
    for (int i = 0; i < pushes; ++i) {
      const auto trigger = triggerOf<Trigger>(static_cast<std::uint64_t>(thread), static_cast<std::uint64_t>(i));
      const std::uint64_t position = granularity == PushGranularity::Warps
                                         ? handle.template push<releaseScope>(grid.warp(), trigger)
                                         : handle.template push<releaseScope>(trigger);
      const bool increased = i == 0 || position > last;
      if (position == invalidTriggerPosition || !increased) {
        arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, std::uint64_t{1});
      }
      last = position;
    }
  }
};

/// Pushes from a launch of `shape` while the host pops: the triggers of each pushing thread must arrive once, in order.
template <class Trigger, ReleaseScope releaseScope = ReleaseScope::System>
void checkPushes(PushGranularity granularity, Shape shape, int fifoSize, int pushes, int popsPerTailUpdate = 1) {
  Backend<4> backend;
  const int threads =
      granularity == PushGranularity::OneThread ? 1 : shape.blocks * shape.warps * Backend<4>::warpWidth;
  BasicFifo<Trigger> fifo(FifoOptions{fifoSize, fifoDevice<Backend<4>>(), popsPerTailUpdate});
  auto memory = backend.allocate(1, 64, 0);
  std::vector<std::uint64_t> next(static_cast<std::size_t>(threads));
  std::uint64_t wrong = 0;
  const std::uint64_t total = static_cast<std::uint64_t>(threads) * static_cast<std::uint64_t>(pushes);
  const auto record = backend.run(
      shape,
      PushBody<Trigger, releaseScope>{handleOf(fifo, backend.control()), granularity, pushes,
                                      reinterpret_cast<std::uint64_t*>(memory.window().at(0))},
      [&](WaitControl&) {
        const auto start = arch::nanoseconds();
        while (fifo.tail() < total && arch::nanoseconds() - start < 2 * waitTimeout) {
          Trigger trigger;
          if (!fifo.poll(trigger)) {
            arch::backoff(20);
            continue;
          }
          const auto pusher = numberOf(trigger) >> 32;
          if (!isIntact(trigger) || pusher >= next.size() || next[pusher] != (numberOf(trigger) & 0xffffffff)) {
            ++wrong;
          } else {
            ++next[pusher];
          }
          fifo.pop();
        }
      });
  CHECK_FALSE(record);
  CHECK(wrong == 0);
  CHECK(fifo.tail() == total);
  Trigger none;
  CHECK_FALSE(fifo.poll(none));
  CHECK(memory.template read<std::uint64_t>(0)[0] == 0);
}

TEST_CASE_TEMPLATE("fifo: one thread pushes through many wrap-arounds", Trigger, ProxyTrigger, WideTrigger) {
  checkPushes<Trigger>(PushGranularity::OneThread, {1, 1, 1}, 4, 103);
  checkPushes<Trigger, ReleaseScope::None>(PushGranularity::OneThread, {1, 1, 1}, 1, 9);
  checkPushes<Trigger, ReleaseScope::Device>(PushGranularity::OneThread, {1, 1, 1}, 512, 1500, 16);
}

TEST_CASE_TEMPLATE("fifo: every thread of many blocks pushes", Trigger, ProxyTrigger, WideTrigger) {
  checkPushes<Trigger>(PushGranularity::EveryThread, {1, 3, 2}, 8, 50);
  checkPushes<Trigger, ReleaseScope::None>(PushGranularity::EveryThread, {1, 2, 2}, 256, 200, 32);
}

TEST_CASE_TEMPLATE("fifo: warps push a trigger per lane", Trigger, ProxyTrigger, WideTrigger) {
  checkPushes<Trigger>(PushGranularity::Warps, {1, 2, 2}, Backend<4>::warpWidth, 30);
  checkPushes<Trigger, ReleaseScope::None>(PushGranularity::Warps, {1, 1, 2}, 256, 60, 7);
}

/// Rank 0 fills a FIFO of 4 slots that no thread pops.
struct OverfillBody {
  FifoHandle fifo;
  std::uint64_t* positions;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto handle = fifo;
    for (int i = 0; i < 5; ++i) positions[i] = handle.push(ProxyTrigger{});
    positions[5] = handle.sync(positions[4]);
    positions[6] = handle.poll(0);
    TryOnce once;
    positions[7] = handle.sync(0, once);
  }
};

TEST_CASE("fifo: a push into a full FIFO times out and leaves a record") {
  Backend<> backend;
  Fifo fifo(4, fifoDevice<Backend<>>());
  auto memory = backend.allocate(1, 64, poisonByte);
  const auto record = backend.run({1, 1, 1}, OverfillBody{handleOf(fifo, backend.control(), 30'000'000),
                                                          reinterpret_cast<std::uint64_t*>(memory.window().at(0))});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Fifo);
  CHECK(record->outcome == WaitOutcome::Deadline);
  CHECK(record->rank == 7);
  CHECK(record->expected == 1);
  CHECK(record->seen == 0);
  CHECK(memory.read<std::uint64_t>(0) == std::vector<std::uint64_t>{0, 1, 2, 3, invalidTriggerPosition, 0, 0, 0});
  // Exactly the pushed triggers are there, all-zero ones included.
  ProxyTrigger trigger{1, 1};
  for (int i = 0; i < 4; ++i) {
    REQUIRE(fifo.poll(trigger));
    CHECK((trigger.fst == 0 && trigger.snd == 0));
    fifo.pop();
  }
  CHECK_FALSE(fifo.poll(trigger));
}

/// A warp pushes twice.
struct WarpPushBody {
  FifoHandle fifo;
  std::uint64_t* timedOut;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto handle = fifo;
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t position = handle.push(grid.warp(), ProxyTrigger{});
      if (position == invalidTriggerPosition)
        arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(timedOut, std::uint64_t{1});
    }
  }
};

TEST_CASE("fifo: a warp's push into a FIFO with fewer slots than lanes fails at once and records why") {
  constexpr int width = Backend<>::warpWidth;
  Backend<> backend;
  for (const int slots : {width / 2, width}) {
    CAPTURE(slots);
    Fifo fifo(slots, fifoDevice<Backend<>>());
    auto memory = backend.allocate(1, 64, 0);
    const auto record = backend.run({1, 1, 1}, WarpPushBody{handleOf(fifo, backend.control(), 300'000'000),
                                                            reinterpret_cast<std::uint64_t*>(memory.window().at(0))});
    REQUIRE(record);
    // With a slot per lane the first push succeeds, and the second times out waiting for the host.
    const bool tooSmall = slots < width;
    CHECK(record->operation == (tooSmall ? WaitOperation::FifoTooSmall : WaitOperation::Fifo));
    CHECK((record->waitedNanoseconds < 300'000'000) == tooSmall);
    CHECK(memory.read<std::uint64_t>(0)[0] == static_cast<std::uint64_t>(tooSmall ? 2 * width : width));
  }
}

TEST_CASE("fifo: an abort ends a push into a full FIFO") {
  Backend<> backend;
  Fifo fifo(4, fifoDevice<Backend<>>());
  auto memory = backend.allocate(1, 64, 0);
  const auto record = backend.run(
      {1, 1, 1},
      OverfillBody{handleOf(fifo, backend.control()), reinterpret_cast<std::uint64_t*>(memory.window().at(0))},
      [](WaitControl& control) { arch::store<arch::Order::Relaxed, arch::Scope::System>(&control.abort, 1u); });
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::Aborted);
  CHECK(memory.read<std::uint64_t>(0)[4] == invalidTriggerPosition);
}

/// Pushes and waits for each pop: the host's response, written before the pop, must be visible.
struct SyncBody {
  FifoHandle fifo;
  const std::uint64_t* answers;  ///< host memory, atomic accesses
  int rounds;
  std::uint64_t* wrong;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto handle = fifo;
    for (int i = 0; i < rounds; ++i) {
      const auto position = handle.push(ProxyTrigger{static_cast<std::uint64_t>(i), 0});
      if (!handle.sync(position) || !handle.poll(position)) *wrong += 1;
      if (arch::load<arch::Order::Relaxed, arch::Scope::System>(answers) != static_cast<std::uint64_t>(i) + 1)
        *wrong += 1;
    }
  }
};

TEST_CASE("fifo: sync() waits for the pop, and sees what the host wrote before it") {
  Backend<> backend;
  const int rounds = 200;
  Fifo fifo(FifoOptions{8, fifoDevice<Backend<>>(), 8});
  Fifo hostVisible(8, fifoDevice<Backend<>>());  // its slots are host memory that the device can read
  auto* answer = reinterpret_cast<std::uint64_t*>(hostVisible.deviceHandle().triggers);
  auto memory = backend.allocate(1, 64, 0);
  const auto record = backend.run({1, 1, 1},
                                  SyncBody{handleOf(fifo, backend.control()), answer, rounds,
                                           reinterpret_cast<std::uint64_t*>(memory.window().at(0))},
                                  [&](WaitControl&) {
                                    const auto start = arch::nanoseconds();
                                    while (fifo.tail() < rounds && arch::nanoseconds() - start < 2 * waitTimeout) {
                                      ProxyTrigger trigger;
                                      if (!fifo.poll(trigger)) {
                                        arch::backoff(20);
                                        continue;
                                      }
                                      arch::store<arch::Order::Relaxed, arch::Scope::System>(answer, trigger.fst + 1);
                                      fifo.pop();
                                    }
                                    ProxyTrigger none;
                                    CHECK_FALSE(fifo.poll(none));
                                  });
  CHECK_FALSE(record);
  CHECK(memory.read<std::uint64_t>(0)[0] == 0);
}

TEST_CASE("fifo: a size that is not a power of two is rejected") {
  const auto device = fifoDevice<Backend<>>();
  CHECK_THROWS_AS(Fifo(0, device), Error);
  CHECK_THROWS_AS(Fifo(-4, device), Error);
  CHECK_THROWS_WITH_AS(Fifo(48, device), doctest::Contains("power of two"), Error);
  CHECK_THROWS_AS(Fifo(8, Device()), Error);
  CHECK_THROWS_AS(Fifo(FifoOptions{8, device, 9}), Error);
  CHECK_THROWS_AS(Fifo(FifoOptions{8, device, 0}), Error);
  CHECK(Fifo(16, device).size() == 16);
}

}  // namespace mscclpp::test
