// Triggers: requests survive both layouts, MSCCL++'s bits have its positions, and values that do not fit are reported.
#include "mscclpp/sync/trigger.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mscclpp;

namespace {

bool same(const PortRequest& a, const PortRequest& b) {
  return a.type == b.type && a.dstMemory == b.dstMemory && a.dstOffset == b.dstOffset && a.srcMemory == b.srcMemory &&
         a.srcOffset == b.srcOffset && a.size == b.size && a.semaphore == b.semaphore;
}

/// Converts a trigger to words, as in a FIFO, and back, with this phase bit.
template <class Trigger>
Trigger throughFifo(const Trigger& trigger, bool phase) {
  Word128 words[Trigger::words];
  for (int i = 0; i < Trigger::words; ++i) {
    words[i] = trigger.word(i);
    words[i].hi = (words[i].hi & ~triggerPhaseBit) | (phase ? triggerPhaseBit : 0);
  }
  return Trigger::fromWords(words);
}

}  // namespace

TEST_CASE("trigger: MSCCL++'s layout") {
  const PortRequest request{TriggerData | TriggerSync, 5, 0xabcd, 3, 0x1234, 0x89abcdef, 1023};
  const auto trigger = ProxyTrigger::make(request);
  CHECK(trigger.fst == (0x89abcdefull | 0x1234ull << 32));
  CHECK(trigger.snd == (0xabcdull | 3ull << 32 | 5ull << 41 | 5ull << 50 | 1023ull << 53));
}

TEST_CASE("trigger: requests within the limits survive") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto bits = [&](int count) { return random() & ((std::uint64_t{1} << count) - 1); };
    PortRequest request{
        1 + bits(32) % 7, static_cast<MemoryId>(bits(9)),    bits(32), static_cast<MemoryId>(bits(9)), bits(32),
        bits(32),         static_cast<SemaphoreId>(bits(10))};
    if (i == 0) request = {7, 511, 0xffffffff, 511, 0xffffffff, 0xffffffff, 1023};
    CHECK(same(throughFifo(ProxyTrigger::make(request), i % 2 == 0).request(), request));
    request.size = random();
    request.srcOffset = random();
    request.dstOffset = random();
    request.srcMemory = static_cast<MemoryId>(random());
    request.dstMemory = static_cast<MemoryId>(random());
    request.semaphore = static_cast<SemaphoreId>(random());
    CHECK(same(throughFifo(WideTrigger::make(request), i % 2 == 0).request(), request));
  }
}

TEST_CASE("trigger: values survive, whatever their bits") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    const TriggerType type = i % 2 == 0 ? TriggerValue : TriggerValue | TriggerFlag;
    const PortRequest request{type,     static_cast<MemoryId>(random() % 512),    random() >> 32, 0, 0,
                              random(), static_cast<SemaphoreId>(random() % 1024)};
    const auto compact = throughFifo(ProxyTrigger::make(request), i % 3 == 0);
    CHECK(same(compact.request(), request));
    CHECK(compact.overflow() == TriggerField::None);
    CHECK(same(throughFifo(WideTrigger::make(request), i % 3 == 0).request(), request));
  }
  const PortRequest far{TriggerValue, 0, std::uint64_t{1} << 32, 0, 0, ~std::uint64_t{0}, 0};
  const auto trigger = ProxyTrigger::make(far);
  CHECK(trigger.request().type == 0);
  CHECK(trigger.overflow() == TriggerField::DstOffset);
}

TEST_CASE("trigger: a value that does not fit is reported, not truncated") {
  const PortRequest fits{TriggerData, 1, 2, 3, 4, 5, 6};
  const auto check = [&](auto change, TriggerField field, std::uint64_t value) {
    PortRequest request = fits;
    change(request);
    const auto trigger = throughFifo(ProxyTrigger::make(request), true);
    CHECK(trigger.request().type == 0);
    CHECK(trigger.overflow() == field);
    CHECK(trigger.overflowValue() == value);
    CHECK(same(WideTrigger::make(request).request(), request));
  };
  constexpr std::uint64_t large = std::uint64_t{1} << 32;
  check([](auto& r) { r.size = large; }, TriggerField::Size, large);
  check([](auto& r) { r.size = ~std::uint64_t{0}; }, TriggerField::Size, ~std::uint64_t{0});
  check([](auto& r) { r.srcOffset = large + 3; }, TriggerField::SrcOffset, large + 3);
  check([](auto& r) { r.dstOffset = large << 20; }, TriggerField::DstOffset, large << 20);
  check([](auto& r) { r.srcMemory = 512; }, TriggerField::SrcMemory, 512);
  check([](auto& r) { r.dstMemory = 1 << 30; }, TriggerField::DstMemory, 1 << 30);
  check([](auto& r) { r.semaphore = 1024; }, TriggerField::Semaphore, 1024);
}
