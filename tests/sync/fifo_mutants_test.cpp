// Weakened pushes into a FIFO: a wrong mark, no wait for room, no release. The trial that the real push passes must catch each.
#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/races.hpp"
#include "mscclpp/host/fifo.hpp"

namespace mscclpp::test {
namespace {

/// What a mutant may change of a push.
struct Weakened {
  bool constantMark = false;
  bool noRoom = false;
  bool noRelease = false;
};

std::uint64_t weakPush(FifoHandle& fifo, const ProxyTrigger& trigger, const Weakened& weakened) {
  using namespace arch;
  const std::uint64_t position = fetchAdd<Order::Relaxed, Scope::Device>(fifo.head, std::uint64_t{1});
  const auto slots = static_cast<std::uint64_t>(fifo.size);
  if (!weakened.noRoom && position >= slots && !fifo.sync(position - slots)) return noFifoPosition;
  auto* slot = reinterpret_cast<Word16*>(fifo.triggers + (position & (slots - 1)));
  const bool mark = weakened.constantMark || (position & slots) == 0;
  const std::uint64_t snd = trigger.snd | (mark ? triggerMark : 0);
  store<Order::Relaxed, Scope::System>(&slot->lo, trigger.fst);
  if (weakened.noRelease) {
    store<Order::Relaxed, Scope::System>(&slot->hi, snd);
  } else {
    store<Order::Release, Scope::System>(&slot->hi, snd);
  }
  return position;
}

int pushesStarted(const FifoHandle& fifo) {
  return static_cast<int>(arch::load<arch::Order::Relaxed, arch::Scope::Device>(fifo.head));
}

/// One thread publishes `pushes` numbers with plain stores and pushes where they are; the host reads them. It begins when all have been
/// pushed, or after `lead` nanoseconds. Returns whether all came, once and in order.
template <class Push>
bool passes(const Push& push, int pushes, std::uint64_t lead = 20'000'000) {
  EmulatedBackend<1> backend;
  Fifo fifo(4, DeviceType::CPU);
  auto memory = backend.allocate(1, static_cast<std::size_t>(pushes) * sizeof(std::uint64_t), 0);
  auto* numbers = reinterpret_cast<std::uint64_t*>(memory.window().at(0));
  auto handle = fifo.deviceHandle();
  handle.waitControl = backend.control();
  handle.waitTimeout = 300'000'000;
  bool right = true;
  int arrived = 0;
  const auto record = backend.run(
      {1, 1, 1},
      [&](int, const auto&) {
        auto own = handle;
        for (int i = 0; i < pushes; ++i) {
          numbers[i] = static_cast<std::uint64_t>(i) + 1;
          if (push(own, ProxyTrigger{static_cast<std::uint64_t>(i), 0}) == noFifoPosition) return;
        }
      },
      [&](WaitControl& control) {
        const auto start = arch::nanoseconds();
        // The pusher has a lead, so that one that does not wait for room overtakes.
        while (arch::nanoseconds() - start < lead && pushesStarted(handle) < pushes) arch::pauseAfterFailure(20);
        while (arrived < pushes && arch::nanoseconds() - start < lead + 2'000'000'000) {
          ProxyTrigger trigger;
          if (!fifo.poll(trigger)) {
            if (arch::load<arch::Order::Relaxed, arch::Scope::System>(&control.expired) != 0) break;
            arch::pauseAfterFailure(20);
            continue;
          }
          right = right && trigger.fst == static_cast<std::uint64_t>(arrived) && numbers[arrived] == trigger.fst + 1;
          ++arrived;
          fifo.pop();
        }
      });
  return right && arrived == pushes && !record;
}

auto weakly(const Weakened& weakened) {
  return [weakened](FifoHandle& fifo, const ProxyTrigger& trigger) { return weakPush(fifo, trigger, weakened); };
}

const auto really = [](FifoHandle& fifo, const ProxyTrigger& trigger) { return fifo.push(trigger); };
const auto unordered = [](FifoHandle& fifo, const ProxyTrigger& trigger) {
  return fifo.push<Publish::Nothing>(trigger);
};

}  // namespace

TEST_CASE("fifo mutants: the real push passes the same trial") {
  CHECK(racesOf([] {
          CHECK(passes(really, 200));
          CHECK(passes(unordered, 200));  // on a CPU every push releases
          CHECK(passes(weakly({}), 200));
        }) == 0);
}

TEST_CASE("fifo mutants: a mark that does not change with the lap is not taken for new") {
  CHECK_FALSE(passes(weakly({.constantMark = true}), 40));
}

TEST_CASE("fifo mutants: a push that does not wait for room overwrites") {
  CHECK_FALSE(passes(weakly({.noRoom = true}), 41, 10'000'000'000));
}

TEST_CASE("fifo mutants: a push that does not release is a race") {
  const auto run = [] { passes(weakly({.noRelease = true}), 200); };
  CHECK((racesOf(run) > 0) == findsRaces);
}

}  // namespace mscclpp::test
