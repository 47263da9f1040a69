// MSCCL++'s device interface on CPU threads: what each name means, as far as no GPU is needed.
#undef NDEBUG
#define DEBUG_BUILD  // the polling loops and assertions must compile so
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mscclpp/assert_device.hpp>
#include <mscclpp/atomic_device.hpp>
#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/copy_device.hpp>
#include <mscclpp/fifo_device.hpp>
#include <mscclpp/gpu_data_types.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/packet_device.hpp>
#include <mscclpp/poll_device.hpp>
#include <mscclpp/port_channel_device.hpp>
#include <mscclpp/switch_channel_device.hpp>
#include <thread>
#include <vector>

using namespace mscclpp;

namespace {

struct alignas(16) Bytes {
  unsigned char at[256];
  explicit Bytes(int first, int step) {
    for (int i = 0; i < 256; ++i) at[i] = static_cast<unsigned char>(first + step * i);
  }
};

/// Bytes [begin, end) of to are those of from, the others are 0.
bool onlyCopied(const Bytes& to, const Bytes& from, int begin, int end) {
  for (int i = 0; i < 256; ++i) {
    if (to.at[i] != (i >= begin && i < end ? from.at[i] : 0)) return false;
  }
  return true;
}

template <int Alignment, bool Rest>
void copyByThree(Bytes& to, const Bytes& from, int begin, int end) {
  for (unsigned thread = 0; thread < 3; ++thread) {
    copy<Alignment, Rest>(to.at + begin, from.at + begin, static_cast<std::uint64_t>(end - begin), thread, 3);
  }
}

}  // namespace

TEST_CASE("compat device: copies with and without the rest") {
  const Bytes from(1, 3);
  for (int begin : {0, 4, 8, 12}) {
    for (int end : {0, 4, 20, 100, 248, 256}) {
      if (end < begin) continue;
      CAPTURE(begin);
      CAPTURE(end);
      Bytes all(0, 0), whole(0, 0), fours(0, 0);
      copyByThree<16, true>(all, from, begin, end);
      CHECK(onlyCopied(all, from, begin, end));
      copyByThree<16, false>(whole, from, begin, end);
      const int first = (begin + 15) / 16 * 16;
      CHECK(onlyCopied(whole, from, first, std::max(first, first + (end - first) / 16 * 16)));
      copyByThree<4, false>(fours, from, begin, end);
      CHECK(onlyCopied(fours, from, begin, end));
    }
  }
  Bytes to(0, 0);
  copyHelper<std::uint64_t, true>(to.at, from.at, 64, 0, 1);
  copyHelper<std::uint64_t>(to.at + 64, from.at + 64, 192, 0, 1);
  CHECK(onlyCopied(to, from, 0, 256));
  CHECK(read<unsigned char>(from.at, 2) == 7);
  write<std::uint16_t>(to.at, 3, 0xabcd);
  CHECK(read<std::uint16_t>(to.at, 3) == 0xabcd);
}

TEST_CASE_TEMPLATE("compat device: a memory channel to oneself", Packet, LL8Packet, LL16Packet) {
  std::array<std::uint32_t, 64> here{}, peer{};
  for (std::uint32_t i = 0; i < 64; ++i) here[i] = i + 1;
  std::vector<Packet> packets(64);
  std::uint64_t counter = 0, consumed = 0;
  MemoryChannelDeviceHandle channel{};
  channel.semaphore_ = MemoryDevice2DeviceSemaphoreDeviceHandle{&counter, &counter, &consumed, nullptr, 0, 0, 0};
  channel.dst_ = peer.data();
  channel.src_ = here.data();
  channel.packetBuffer_ = packets.data();

  volatile std::uint64_t whole =
      sizeof(here);  // g++ 12 warns of what loops would do beyond an array whose size it knows
  channel.template put<16, false>(0, 0, whole, 0, 1);
  CHECK(peer == here);
  peer.fill(0);
  channel.put(4, 8, 0, 1);
  CHECK(peer[1] == 2);
  CHECK(peer[2] == 3);
  CHECK(peer[3] == 0);
  channel.template write<std::uint32_t>(5, 99u);
  CHECK(channel.template read<std::uint32_t>(5) == 99);
  channel.template get<4>(20, 0, 4, 0, 1);
  CHECK(here[0] == 99);

  channel.signal();
  channel.relaxedSignal();
  CHECK(channel.semaphore_.loadInbound() == 2);
  CHECK(channel.semaphore_.loadInboundRelaxed() == 2);
  channel.wait(100);
  CHECK(channel.poll());
  CHECK_FALSE(channel.poll());
  CHECK(channel.semaphore_.loadExpectedInbound() == 2);
  channel.relaxedSignal();
  channel.relaxedWait(-1);
  CHECK(channel.semaphore_.incExpectedInbound() == 4);

  channel.dst_ = packets.data();
  constexpr std::uint64_t bytes = 64;
  channel.template putPackets<Packet>(0, 0, bytes, 0u, 2u, 7u);
  channel.template putPackets<Packet>(0, 0, bytes, 1u, 2u, 7u);
  PacketPayload<Packet> payload = channel.template unpackPacket<Packet>(0, 7, -1);
  CHECK(std::memcmp(&payload, here.data(), sizeof(payload)) == 0);
  const auto sent = here;
  here.fill(0);
  channel.template unpackPackets<Packet>(0, 0, bytes, 0u, 1u, 7u, -1);
  CHECK(std::memcmp(here.data(), sent.data(), bytes) == 0);
  here.fill(0);
  const std::size_t offset = 0, length = bytes;
  channel.template unpackPackets<Packet>(offset, length, 0u, 1u, 7u, -1);
  CHECK(std::memcmp(here.data(), sent.data(), bytes) == 0);
  std::array<std::uint32_t, 64> out{};
  copyToPackets<Packet>(packets.data(), sent.data(), bytes, 0u, 1u, 8u);
  copyFromPackets<Packet>(out.data(), packets.data(), bytes, 0u, 1u, 8u);
  CHECK(std::memcmp(out.data(), sent.data(), bytes) == 0);
}

TEST_CASE("compat device: atomics, polling, semaphores of a device") {
  std::uint64_t word = 0;
  std::thread other([&] { atomicStore(&word, std::uint64_t{5}, memoryOrderRelease); });
  POLL_MAYBE_JAILBREAK((atomicLoad(&word, memoryOrderAcquire) != 5), 1000000);
  int turns = 0;
  OR_POLL_MAYBE_JAILBREAK((++turns < 3), (turns < 5), -1);
  CHECK(turns == 5);
  other.join();
  CHECK(atomicFetchAdd<std::uint64_t, scopeDevice>(&word, 2, memoryOrderRelaxed) == 5);
  CHECK(atomicLoad<std::uint64_t, scopeSystem>(&word, memoryOrderSeqCst) == 7);
  MSCCLPP_ASSERT_DEVICE(word == 7, "it is");

  DeviceSemaphore semaphore(1);
  int inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        semaphore.acquire();
        most = std::max(most.load(), ++inside);
        --inside;
        semaphore.release();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(most == 1);
  semaphore.set(2);
  semaphore.acquire(10);
  semaphore.acquire(10);
}

TEST_CASE("compat device: the fields of a trigger") {
  ProxyTrigger trigger(TriggerData | TriggerFlag, 3, 0x12345678, 5, 0x9abcdef0, 4096, 77);
  CHECK(std::uint64_t{trigger.fields.size} == 4096);
  CHECK(std::uint64_t{trigger.fields.srcOffset} == 0x9abcdef0);
  CHECK(std::uint64_t{trigger.fields.dstOffset} == 0x12345678);
  CHECK(std::uint64_t{trigger.fields.srcMemoryId} == 5);
  CHECK(std::uint64_t{trigger.fields.dstMemoryId} == 3);
  CHECK(std::uint64_t{trigger.fields.type} == (TriggerData | TriggerFlag));
  CHECK(std::uint64_t{trigger.fields.semaphoreId} == 77);
  CHECK(std::uint64_t{trigger.fields.reserved} == 0);
  CHECK(trigger.fst == (0x9abcdef0ull << 32 | 4096));
  trigger.fields.type = TriggerSync;
  CHECK(trigger.request().type == TriggerSync);
  CHECK(TriggerBitsSize + TriggerBitsOffset == 64);
  CHECK(TriggerBitsOffset + 2 * TriggerBitsMemoryId + TriggerBitsType + TriggerBitsSemaphoreId +
            TriggerBitsFifoReserved ==
        64);
  static_assert(sizeof(ProxyTrigger) == 16 && alignof(ProxyTrigger) == 16);
}

TEST_CASE("compat device: vectors of elements") {
  static_assert(sizeof(f16x8) == 16 && sizeof(f32x16) == 64 && sizeof(f8_e4m3b15x2) == 2 && f32x4::Size == 4);
  f16x2 a, b;
  for (int i = 0; i < 2; ++i) {
    a.data[i] = __float2half(60000.0f);
    b[i] = __float2half(i == 0 ? 60000.0f : 1.0f);
  }
  CHECK(__half2float((a + b).data[0]) == 65504.0f);  // clipped
  CHECK(std::isinf(__half2float(operator+<false>(a, b).data[0])));
  CHECK(__half2float(min(a, b).data[1]) == 1.0f);
  CHECK(__half2float(clip(__float2half(-INFINITY))) == -65504.0f);
  CHECK(bit_cast<std::uint32_t>(a) == a.words[0]);
  const u8x4 bytes{{250, 1, 2, 3}};
  CHECK((bytes + bytes).data[0] == 244);
  static_assert(sizeof(u8x2) == 2 && sizeof(f8_e5m2x8) == 8);
  const f32x4 floats{{1.5f, -2.0f, 1000.0f, 0.1f}};
  const auto eights = to<f8_e4m3x4>(floats);
  const auto again = to<f32x4>(eights);
  CHECK(again.data[0] == 1.5f);
  CHECK(again.data[2] == 448.0f);  // saturated
  CHECK(__half2float(to<f16x4>(eights).data[1]) == -2.0f);
  CHECK(floats.storage.y == -2.0f);
  CHECK(to<f8_e5m2x4>(to<f16x4>(floats)).words[0] == to<f8_e5m2x4>(floats).words[0]);
  CHECK(static_cast<int>(DataType::UINT8) == 9);
  CHECK(static_cast<int>(DataType::AUTO) == 255);
}

TEST_CASE("compat device: fp8 with a bias of 15, every value and every rounding") {
  std::vector<float> values;
  for (int bits = 0; bits < 128; ++bits) {
    const float value = __fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(bits));
    const int exponent = bits >> 3, mantissa = bits & 7;
    const double exact = exponent == 0 ? std::ldexp(mantissa, -17) : std::ldexp(1 + mantissa / 8.0, exponent - 15);
    CHECK(value == exact);
    CHECK(static_cast<float>(__fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(bits | 128))) == -exact);
    values.push_back(value);
  }
  CHECK(values.back() == 1.875f);
  const auto nearest = [](float value) { return static_cast<float>(__fp8_e4m3b15(value)); };
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const float low = values[i], high = values[i + 1], middle = (low + high) / 2;
    CHECK(nearest(low) == low);
    CHECK(nearest(middle) == (i % 2 == 0 ? low : high));  // to even
    CHECK(nearest(std::nextafter(middle, 0.0f)) == low);
    CHECK(nearest(-std::nextafter(middle, 2.0f)) == -high);
  }
  for (float large : {1.9f, 2.0f, 100.0f, INFINITY, NAN}) CHECK(nearest(large) == 1.875f);
  CHECK(nearest(-INFINITY) == -1.875f);
  f8_e4m3b15x2 pair = to<f8_e4m3b15x2>(f32x2{{1.0f, 1.5f}});
  CHECK(static_cast<float>((pair + pair).data[0]) == 1.875f);
  CHECK(__half2float(to<f16x2>(pair).data[1]) == 1.5f);
}
