// Mutants of the packet protocols, which the cases of the originals must detect.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>

#include "exchange.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/longer_delays.hpp"

namespace mscclpp::test {
namespace {

constexpr std::uint64_t firstDelay = 2'000'000;  // ns
std::atomic<std::uint64_t> delayTime = firstDelay;

// A delay between two stores, long enough for the peer to read in between.
void delay() {
  const auto start = arch::nanoseconds();
  while (arch::nanoseconds() - start < delayTime) arch::backoff(200);
}

// Whether this thread belongs to the rank whose data arrives late.
thread_local bool isDelayedRank = false;

/// An LL16 packet as a base class, which a union cannot be.
struct PacketBase {
  using Payload = LL16Packet::Payload;
  LL16Packet packet;
  void write(Payload payload, std::uint32_t flag) { packet.write(payload, flag); }
  bool hasFlag(std::uint32_t flag) const { return packet.hasFlag(flag); }
  Payload payload() const { return packet.payload(); }
  void clear() { packet.clear(); }
};

/// LL16 whose reader checks the first flag only, while the halves arrive separately.
struct OneFlagPacket : PacketBase {
  void write(Payload payload, std::uint32_t flag) {
    auto* word = reinterpret_cast<Word128*>(this);
    const std::uint64_t flagBits = static_cast<std::uint64_t>(flag) << 32;
    arch::store<arch::Order::Relaxed, arch::Scope::System>(&word->lo, flagBits | payload.x);
    if (isDelayedRank) delay();
    arch::store<arch::Order::Relaxed, arch::Scope::System>(&word->hi, flagBits | payload.y);
  }
  OneFlagPacket load() const { return {{packet.load()}}; }
  bool hasFlag(std::uint32_t flag) const { return packet.flag1 == flag; }
};

/// LL16 that sends an unexpected flag.
struct WrongFlagPacket : PacketBase {
  void write(Payload payload, std::uint32_t flag) { PacketBase::write(payload, flag + 1); }
  WrongFlagPacket load() const { return {{packet.load()}}; }
};

/// LL16 whose flag is truncated to a few bits, so that a slot's old flag repeats.
struct ShortFlagPacket : PacketBase {
  void write(Payload payload, std::uint32_t flag) {
    if (isDelayedRank) delay();
    PacketBase::write(payload, 1 + flag % 2);
  }
  ShortFlagPacket load() const { return {{packet.load()}}; }
  bool hasFlag(std::uint32_t flag) const { return PacketBase::hasFlag(1 + flag % 2); }
};

/// LL128 whose flag overtakes the data.
struct FlagFirstLines : LL128<LineStore::Ordered> {
  template <class Warp>
  static void write(const Warp& warp, std::byte* slots, std::size_t row, const Word128& pack, std::uint64_t epoch) {
    auto* flag = reinterpret_cast<std::uint64_t*>(slots + row * Warp::width * 16) + warp.rank() * 2 + 1;
    if (warp.rank() % 8 == 7) arch::store<arch::Order::Release, arch::Scope::System>(flag, epoch);
    warp.sync();
    if (isDelayedRank) delay();
    LL128<LineStore::Ordered>::write(warp, slots, row, pack, epoch);
  }
};

/// Sentinel whose reader does not re-poison the slot.
struct NoRepoison : Sentinel {
  template <class Warp>
  static void write(const Warp& warp, std::byte* slots, std::size_t row, const Word128& pack, std::uint64_t epoch) {
    if (isDelayedRank) delay();
    Sentinel::write(warp, slots, row, pack, epoch);
  }
  template <class Warp>
  static void resetSlot(const Warp&, std::byte*, std::size_t) {}
};

/// Sentinel that does not escape payloads equal to the empty-slot pattern.
struct NoEscape : Sentinel {
  template <class Warp>
  static bool arrivedEscaped(const Warp&, std::byte*, std::size_t, const Fetched&, std::uint64_t) {
    return false;
  }
};

struct Outcome {
  bool expired;
  bool wrong;
};

/// The outcome of `calls` exchanges of random packs.
template <class P, int Width>
Outcome runExchange(std::size_t packs, int calls, int emptyByte, std::uint64_t timeout = waitTimeout) {
  Backend<Width> backend;
  const std::size_t total = packs * static_cast<std::size_t>(calls);
  auto slots = backend.allocate(2, 2 * P::bytes(packs), P::initialByte);
  auto inputs = backend.allocate(2, total * sizeof(Word128), 0);
  auto outputs = backend.allocate(2, total * sizeof(Word128), poisonByte);
  std::vector<Word128> data[2];
  for (int rank = 0; rank < 2; ++rank) {
    data[rank] = packsWithEmptySlotPatterns(total, static_cast<unsigned>(rank + 1), emptyByte);
    inputs.write(rank, data[rank]);
  }
  const ExchangeBody<P> exchange{slots.window(),       inputs.window(), outputs.window(), packs, calls, 1,
                                 backend.wait(timeout)};
  const auto record = backend.run({2, 1, 1}, [&](int rank, const auto& grid) {
    isDelayedRank = rank == 1;
    exchange(rank, grid);
  });
  Outcome outcome{record.has_value(), false};
  for (int rank = 0; rank < 2; ++rank)
    outcome.wrong |= firstDifference(outputs.template read<Word128>(rank), data[1 - rank]) != -1;
  return outcome;
}

constexpr int neutralByte = 0x3c;

/// Whether a run gave wrong data.
bool isDetected(const std::function<Outcome()>& run) {
  const bool isFound = isFoundWithLongerDelays([&](std::uint64_t factor) {
    delayTime = firstDelay * factor;
    return run().wrong;
  });
  delayTime = firstDelay;
  return isFound;
}

}  // namespace

TEST_CASE("mutants: the originals pass the same test") {
  const auto fine = [](Outcome outcome) { return !outcome.expired && !outcome.wrong; };
  CHECK(fine(runExchange<PacketRows<LL16Packet>, 2>(2, 6, neutralByte)));
  CHECK(fine(runExchange<LL128<LineStore::Ordered>, 16>(15, 2, neutralByte)));
  CHECK(fine(runExchange<Sentinel, 2>(20, 8, Sentinel::initialByte)));
}

TEST_CASE("mutants: a packet whose halves arrive separately is read too early") {
  CHECK(isDetected([] { return runExchange<PacketRows<OneFlagPacket>, 2>(2, 1, neutralByte); }));
}

TEST_CASE("mutants: a wait for a packet with a wrong flag times out") {
  CHECK(runExchange<PacketRows<WrongFlagPacket>, 2>(2, 1, neutralByte, 50'000'000).expired);
}

TEST_CASE("mutants: with a flag that repeats too soon, old data is received") {
  CHECK(isDetected([] { return runExchange<PacketRows<ShortFlagPacket>, 2>(2, 6, neutralByte); }));
}

TEST_CASE("mutants: with a flag that arrives before its line's data, old data is received") {
  CHECK(isDetected([] { return runExchange<FlagFirstLines, 16>(15, 1, neutralByte); }));
}

TEST_CASE("mutants: with a slot that is not re-poisoned, old data is received") {
  CHECK(isDetected([] { return runExchange<NoRepoison, 2>(2, 8, neutralByte); }));
}

TEST_CASE("mutants: a wait for poison that is not escaped times out") {
  CHECK(runExchange<NoEscape, 2>(20, 1, Sentinel::initialByte, 50'000'000).expired);
}

}  // namespace mscclpp::test
