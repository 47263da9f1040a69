// Mutants of a push into a FIFO: a wrong phase bit, no wait for a free slot, no release. The test that the original
// passes must detect each.
#include <doctest/doctest.h>

#include "mscclpp/host/proxy/fifo.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {
namespace {

/// The changes that a mutant makes to a push.
struct Mutation {
  bool constantPhase = false;
  bool noFullCheck = false;
  bool noRelease = false;
};

std::uint64_t mutatedPush(FifoHandle& fifo, const ProxyTrigger& trigger, const Mutation& mutation) {
  using namespace arch;
  const std::uint64_t position = fetchAdd<Order::Relaxed, Scope::Device>(fifo.head, std::uint64_t{1});
  const auto slots = static_cast<std::uint64_t>(fifo.size);
  if (!mutation.noFullCheck && position >= slots && !fifo.sync(position - slots)) return invalidTriggerPosition;
  auto* slot = reinterpret_cast<Word128*>(fifo.triggers + (position & (slots - 1)));
  const bool phase = mutation.constantPhase || (position & slots) == 0;
  const std::uint64_t snd = trigger.snd | (phase ? triggerPhaseBit : 0);
  store<Order::Relaxed, Scope::System>(&slot->lo, trigger.fst);
  if (mutation.noRelease) {
    store<Order::Relaxed, Scope::System>(&slot->hi, snd);
  } else {
    store<Order::Release, Scope::System>(&slot->hi, snd);
  }
  return position;
}

int pushesStarted(const FifoHandle& fifo) {
  return static_cast<int>(arch::load<arch::Order::Relaxed, arch::Scope::Device>(fifo.head));
}

/// One thread writes `pushes` numbers with plain stores and pushes their positions; the host reads them, starting once
/// all have been pushed or after `headStart` nanoseconds. Returns whether all arrived once and in order.
template <class Push>
bool passes(const Push& push, int pushes, std::uint64_t headStart = 20'000'000) {
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
          if (push(own, ProxyTrigger{static_cast<std::uint64_t>(i), 0}) == invalidTriggerPosition) return;
        }
      },
      [&](WaitControl& control) {
        const auto start = arch::nanoseconds();
        // The pushing thread starts first, so that a mutant that does not wait for free slots overwrites some.
        while (arch::nanoseconds() - start < headStart && pushesStarted(handle) < pushes) arch::backoff(20);
        while (arrived < pushes && arch::nanoseconds() - start < headStart + 2'000'000'000) {
          ProxyTrigger trigger;
          if (!fifo.poll(trigger)) {
            if (arch::load<arch::Order::Relaxed, arch::Scope::System>(&control.expired) != 0) break;
            arch::backoff(20);
            continue;
          }
          right = right && trigger.fst == static_cast<std::uint64_t>(arrived) && numbers[arrived] == trigger.fst + 1;
          ++arrived;
          fifo.pop();
        }
      });
  return right && arrived == pushes && !record;
}

auto withMutation(const Mutation& mutation) {
  return [mutation](FifoHandle& fifo, const ProxyTrigger& trigger) { return mutatedPush(fifo, trigger, mutation); };
}

const auto realPush = [](FifoHandle& fifo, const ProxyTrigger& trigger) { return fifo.push(trigger); };
const auto unorderedPush = [](FifoHandle& fifo, const ProxyTrigger& trigger) {
  return fifo.push<ReleaseScope::None>(trigger);
};

}  // namespace

TEST_CASE("fifo mutants: the original push passes the same test") {
  CHECK(countRaces([] {
          CHECK(passes(realPush, 200));
          CHECK(passes(unorderedPush, 200));  // on a CPU every push releases
          CHECK(passes(withMutation({}), 200));
        }) == 0);
}

TEST_CASE("fifo mutants: a trigger whose phase bit does not alternate is not taken as new") {
  CHECK_FALSE(passes(withMutation({.constantPhase = true}), 40));
}

TEST_CASE("fifo mutants: a push that does not wait for a free slot overwrites a trigger") {
  CHECK_FALSE(passes(withMutation({.noFullCheck = true}), 41, 10'000'000'000));
}

TEST_CASE("fifo mutants: a push that does not release is a race") {
  const auto run = [] { passes(withMutation({.noRelease = true}), 200); };
  CHECK((countRaces(run) > 0) == detectsRaces);
}

}  // namespace mscclpp::test
