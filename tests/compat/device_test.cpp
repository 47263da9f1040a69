// MSCCL++'s device interface on CPU threads: the behaviour of each name, as far as no GPU is needed.
#undef NDEBUG
#define DEBUG_BUILD  // the polling loops and assertions must compile with it
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mscclpp/assert_device.hpp>
#include <mscclpp/atomic_device.hpp>
#include <mscclpp/bulk_device.hpp>
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

/// Whether bytes [begin, end) of `to` equal those of `from` and the others are 0.
bool onlyCopied(const Bytes& to, const Bytes& from, int begin, int end) {
  for (int i = 0; i < 256; ++i) {
    if (to.at[i] != (i >= begin && i < end ? from.at[i] : 0)) return false;
  }
  return true;
}

template <int Alignment, bool CopyRemainder>
void copyWithThreeThreads(Bytes& to, const Bytes& from, int begin, int end) {
  for (unsigned thread = 0; thread < 3; ++thread) {
    copy<Alignment, CopyRemainder>(to.at + begin, from.at + begin, static_cast<std::uint64_t>(end - begin), thread, 3);
  }
}

}  // namespace

TEST_CASE("compat device: copies with and without the remainder") {
  const Bytes from(1, 3);
  for (int begin : {0, 4, 8, 12}) {
    for (int end : {0, 4, 20, 100, 248, 256}) {
      if (end < begin) continue;
      CAPTURE(begin);
      CAPTURE(end);
      Bytes all(0, 0), whole(0, 0), fours(0, 0);
      copyWithThreeThreads<16, true>(all, from, begin, end);
      CHECK(onlyCopied(all, from, begin, end));
      copyWithThreeThreads<16, false>(whole, from, begin, end);
      const int first = (begin + 15) / 16 * 16;
      CHECK(onlyCopied(whole, from, first, std::max(first, first + (end - first) / 16 * 16)));
      copyWithThreeThreads<4, false>(fours, from, begin, end);
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
  channel.semaphore_ = MemoryDevice2DeviceSemaphoreDeviceHandle{{}, &counter, &counter, &consumed, nullptr, 0, 0, 0};
  channel.dst_ = peer.data();
  channel.src_ = here.data();
  channel.packetBuffer_ = packets.data();

  volatile std::uint64_t whole = sizeof(here);  // the known array size makes g++ 12 warn of accesses beyond it
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

TEST_CASE("compat device: atomics, polling, device semaphores") {
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
  std::atomic<int> maxInside = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        semaphore.acquire();
        maxInside = std::max(maxInside.load(), ++inside);
        --inside;
        semaphore.release();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(maxInside == 1);
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

TEST_CASE("compat device: fp8 with a bias of 15, every value") {
  for (int bits = 0; bits < 128; ++bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    const double exact = exponent == 0 ? std::ldexp(mantissa, -17) : std::ldexp(1 + mantissa / 8.0, exponent - 15);
    const auto value = __fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(bits));
    CHECK(static_cast<float>(value) == exact);
    CHECK(static_cast<float>(__fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(bits | 128))) == -exact);
    CHECK(__fp8_e4m3b15(static_cast<float>(value)).__x == bits);
  }
}

// Rounding by definition: the nearest of the 128 magnitudes, ties to the larger.
TEST_CASE("compat device: fp8 with a bias of 15, every fp16 value rounded") {
  std::array<double, 128> magnitudes{};
  for (int bits = 0; bits < 128; ++bits) {
    magnitudes[static_cast<std::size_t>(bits)] =
        static_cast<float>(__fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(bits)));
  }
  int wrong = 0;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = bit_cast<__half>(static_cast<std::uint16_t>(bits));
    const double magnitude = std::fabs(static_cast<double>(__half2float(half)));
    int nearest = 127;  // also for NaN
    for (int i = 127; i-- > 0;) {
      const double below = magnitudes[static_cast<std::size_t>(i)],
                   above = magnitudes[static_cast<std::size_t>(nearest)];
      if (magnitude - below < above - magnitude) nearest = i;
    }
    const int expected = nearest | ((bits & 0x8000) != 0 ? 0x80 : 0);
    wrong += __fp8_e4m3b15(half).__x != expected;
    if (!std::isnan(magnitude)) wrong += __fp8_e4m3b15(__half2float(half)).__x != expected;
  }
  CHECK(wrong == 0);
}

TEST_CASE("compat device: fp8 with a bias of 15, floats are first rounded to fp16") {
  CHECK(__fp8_e4m3b15(0x1p-18f).__x == 0x01);
  CHECK(__fp8_e4m3b15(-0x1p-18f).__x == 0x81);
  CHECK(__fp8_e4m3b15(std::nextafter(0x1p-18f, 0.0f)).__x == 0x01);  // fp16 rounds it up to 2^-18
  CHECK(__fp8_e4m3b15(0x0.fdp-18f).__x == 0x00);
  CHECK(__fp8_e4m3b15(0x1.0fep-2f).__x == 0x69);  // below the middle of 0x68 and 0x69, which fp16 rounds it to
  CHECK(__fp8_e4m3b15(0x1.0fcp-2f).__x == 0x68);
  CHECK(__fp8_e4m3b15(0x1.1p-2f).__x == 0x69);
  for (float large : {1.9f, 2.0f, 100.0f, 1e10f, INFINITY, NAN}) CHECK(__fp8_e4m3b15(large).__x == 0x7f);
  CHECK(__fp8_e4m3b15(-INFINITY).__x == 0xff);
  f8_e4m3b15x2 pair = to<f8_e4m3b15x2>(f32x2{{1.0f, 1.5f}});
  CHECK(static_cast<float>((pair + pair).data[0]) == 1.875f);
  CHECK(__half2float(to<f16x2>(pair).data[1]) == 1.5f);
  const __fp8x4_e4m3b15 four(float4{1.0f, -1.5f, 0.25f, 9.0f});
  const float4 again = four;
  CHECK(again.x == 1.0f);
  CHECK(again.y == -1.5f);
  CHECK(again.z == 0.25f);
  CHECK(again.w == 1.875f);
  const float2 low = __fp8x2_e4m3b15(static_cast<std::uint16_t>(four.__x));
  CHECK(low.y == -1.5f);
}

// The storage of vectors, as programs name it.
static_assert(std::is_same_v<VectorType<float, 4>, VectorTypeImpl<float, 4, float4>>);
static_assert(std::is_same_v<VectorTypeHelper<__half, 2>::type, VectorTypeImpl<__half, 2, __half2>>);
static_assert(std::is_same_v<bf16x2::StorageType, __bfloat162> && std::is_same_v<f64x1::StorageType, double>);
static_assert(std::is_same_v<f16x8::StorageType, uint4> && std::is_same_v<bf16x4::StorageType, uint2>);
static_assert(std::is_same_v<u8x2::StorageType, std::uint16_t> && std::is_same_v<u8x4::StorageType, std::uint32_t>);
static_assert(std::is_same_v<f8_e4m3x16::StorageType, uint4> && std::is_same_v<f8_e5m2x8::StorageType, uint2>);
static_assert(std::is_same_v<f8_e4m3x4::StorageType, __fp8x4_e4m3> &&
              std::is_same_v<f8_e4m3b15x2::StorageType, __fp8x2_e4m3b15>);
static_assert(std::is_same_v<i32x2::StorageType, int2> && std::is_same_v<i32x1::StorageType, std::int32_t>);
static_assert(std::is_same_v<f32x8::StorageType, Words<32>> && sizeof(Words<64>) == sizeof(f32x16));
static_assert(std::is_trivially_copyable_v<f16x2> && std::is_trivially_default_constructible_v<f32x4>);

TEST_CASE("compat device: vectors convert to their storage, and to pointers to their elements") {
  f32x4 floats = make_float4(1, 2, 3, 4);
  const float4 stored = floats;
  CHECK(stored.z == 3);
  floats = float4{5, 6, 7, 8};
  const float* elements = floats;
  CHECK(elements[3] == 8);
  static_cast<float*>(floats)[0] = 9;
  CHECK(floats[0l] == 9);
  CHECK(floats[std::size_t{1}] == 6);
  const f16x2 pair = __floats2half2_rn(1.5f, -2.0f);
  const __half2 native = pair;
  CHECK(__half2float(native.y) == -2.0f);
  CHECK(bit_cast<std::uint32_t>(native) == pair.words[0]);
  CHECK(__half2float(bit_cast<__half2>(pair.words[0]).x) == 1.5f);
  CHECK(bit_cast<__bfloat162>(std::uint32_t{0x40003f80}).y == __float2bfloat16(2.0f));
  const u32x4 words = uint4{1, 2, 3, 4};
  const f16x8 halves = static_cast<uint4>(words);
  CHECK(halves.words[2] == 3);
  const i32x1 one = 7;
  CHECK(one + 1 == 8);
  u8x4 bytes = 0x04030201u;
  CHECK(bytes[3] == 4);
  f32x8 many{};
  Words<32> raw = many;
  raw[7] = 0x3f800000;
  many = raw;
  CHECK(many[7] == 1.0f);
}

TEST_CASE("compat device: sums of fp8 elements, and minima of scalars and pairs") {
#if !defined(__FP8_TYPES_EXIST__)
  FAIL("there are fp8 types");
#endif
  const __fp8_e4m3 large(300.0f), small(-3.0f);
  CHECK(static_cast<float>(mscclpp::operator+<false>(large, large)) == 448.0f);  // saturated
  CHECK(static_cast<float>(mscclpp::operator+<true>(small, small)) == -6.0f);
  CHECK(static_cast<float>(__fp8_e5m2(1.0f) + __fp8_e5m2(0.5f)) == 1.5f);
  const auto b15 = mscclpp::operator+<true>(__fp8_e4m3b15(1.0f), __fp8_e4m3b15(1.5f));
  static_assert(std::is_same_v<decltype(b15), const __fp8_e4m3b15>);
  CHECK(b15.__x == 0x7f);
  CHECK(static_cast<float>(mscclpp::min(large, small)) == -3.0f);
  CHECK(mscclpp::min(3, -4) == -4);
  CHECK(mscclpp::min(1.0f, 2.0f) == 1.0f);
  CHECK(__half2float(mscclpp::min(__float2half(1.0f), __float2half(-1.0f))) == -1.0f);
  const __half2 least = mscclpp::min(__floats2half2_rn(1, 5), __floats2half2_rn(2, 3));
  CHECK(__half2float(least.x) == 1.0f);
  CHECK(__half2float(least.y) == 3.0f);
  CHECK(__half2float(clip(__floats2half2_rn(INFINITY, 3)).x) == 65504.0f);
}

TEST_CASE("compat device: packets written from a word, and read as raw bits") {
  LL16Packet wide{};
  wide.write(std::uint64_t{2} << 32 | 1, 3u);
  CHECK(wide.data1 == 1);
  CHECK(wide.data2 == 2);
  CHECK(wide.raw_.x == (std::uint64_t{3} << 32 | 1));
  CHECK(wide.raw_.y == (std::uint64_t{3} << 32 | 2));
  static_assert(std::is_same_v<decltype(LL16Packet::raw_), ulonglong2> && std::is_union_v<LL16Packet>);
  LL8Packet narrow(5, 6);
  CHECK(narrow.raw_ == (std::uint64_t{6} << 32 | 5));
}

// The exact types that programs take addresses with.
constexpr void (*reduceFloats)(void*, const void*, std::uint32_t) = &bulkReduceStore<float, BulkRedOp::Add>;
constexpr void (LL16Packet::*writeWord)(std::uint64_t, std::uint32_t) = &LL16Packet::write;
constexpr bool (BasePortChannelDeviceHandle::*waitFlush)(std::uint64_t,
                                                         std::int64_t) const = &BasePortChannelDeviceHandle::waitFlush;

TEST_CASE("compat device: functions called through their addresses") {
  alignas(16) std::array<float, 4> to{1, 2, 3, 4}, from{10, 20, 30, 40};
  reduceFloats(to.data(), from.data(), sizeof(to));
  bulkStoreCommit();
  bulkStoreWait();
  CHECK(to == std::array<float, 4>{11, 22, 33, 44});
  LL16Packet packet{};
  (packet.*writeWord)(7, 1);
  CHECK(packet.data1 == 7);

  std::uint64_t done = 5;
  BasePortChannelDeviceHandle channel{};
  channel.flushDonePos_ = &done;
  CHECK((channel.*waitFlush)(4, 100));
  channel.fifo_.waitTimeout = 1000;
  CHECK_FALSE((channel.*waitFlush)(5, 100));
  static_assert(DeviceSyncer::NumCounters == 3);
}
