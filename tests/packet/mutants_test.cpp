// Weakened copies of the packet protocols: what the cases of the real ones rest on must be what catches these.
#include <doctest/doctest.h>

#include <functional>

#include "backend/backend.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "packet/exchange.hpp"

namespace mscclpp::test {
namespace {

// A window between two stores, held open long enough that the peer is sure to look into it.
void dawdle() {
  const auto start = arch::nanoseconds();
  while (arch::nanoseconds() - start < 2'000'000) arch::pauseAfterFailure(200);
}

// Whether this thread belongs to the rank whose data come late.
thread_local bool late = false;

/// LL16 whose reader looks at the first flag only, while the halves arrive apart.
struct OneFlagPacket : LL16Packet {
  void write(Payload payload, std::uint32_t flag) {
    auto* word = reinterpret_cast<Word16*>(this);
    const std::uint64_t mark = static_cast<std::uint64_t>(flag) << 32;
    arch::store<arch::Order::Relaxed, arch::Scope::System>(&word->lo, mark | payload.x);
    dawdle();
    arch::store<arch::Order::Relaxed, arch::Scope::System>(&word->hi, mark | payload.y);
  }
  OneFlagPacket load() const { return {LL16Packet::load()}; }
  bool carries(std::uint32_t flag) const { return flag1 == flag; }
};

/// LL16 that sends a flag that nobody expects.
struct WrongFlagPacket : LL16Packet {
  void write(Payload payload, std::uint32_t flag) { LL16Packet::write(payload, flag + 1); }
  WrongFlagPacket load() const { return {LL16Packet::load()}; }
};

/// LL16 whose flag is cut to a few bits, so that a slot's old flag comes again.
struct ShortFlagPacket : LL16Packet {
  void write(Payload payload, std::uint32_t flag) {
    if (late) dawdle();
    LL16Packet::write(payload, 1 + flag % 2);
  }
  ShortFlagPacket load() const { return {LL16Packet::load()}; }
  bool carries(std::uint32_t flag) const { return LL16Packet::carries(1 + flag % 2); }
};

/// LL128 whose flag overtakes the data.
struct FlagFirstLines : LL128<LineStore::Ordered> {
  template <class Warp>
  static void write(const Warp& warp, std::byte* slots, std::size_t row, const Word16& pack, std::uint64_t epoch) {
    auto* flag = reinterpret_cast<std::uint64_t*>(slots + row * Warp::width * 16) + warp.rank() * 2 + 1;
    if (warp.rank() % 8 == 7) arch::store<arch::Order::Release, arch::Scope::System>(flag, epoch);
    warp.sync();
    dawdle();
    LL128<LineStore::Ordered>::write(warp, slots, row, pack, epoch);
  }
};

/// Sentinel whose reader leaves the slot as it is.
struct NoPoison : Sentinel {
  template <class Warp>
  static void write(const Warp& warp, std::byte* slots, std::size_t row, const Word16& pack, std::uint64_t epoch) {
    if (late) dawdle();
    Sentinel::write(warp, slots, row, pack, epoch);
  }
  template <class Warp>
  static void consumed(const Warp&, std::byte*, std::size_t) {}
};

/// Sentinel that does not announce payloads which look like an empty slot.
struct NoEscape : Sentinel {
  template <class Warp>
  static bool arrivedDisguised(const Warp&, std::byte*, std::size_t, const Fetched&, std::uint64_t) {
    return false;
  }
};

struct Outcome {
  bool expired;
  bool wrong;
};

/// What becomes of `calls` exchanges of random packs.
template <class P, int Width>
Outcome outcomeOf(std::size_t packs, int calls, int lookalikes, std::uint64_t timeout = waitTimeout) {
  Backend<Width> backend;
  const std::size_t total = packs * static_cast<std::size_t>(calls);
  auto slots = backend.allocate(2, 2 * P::bytes(packs), P::initialByte);
  auto inputs = backend.allocate(2, total * sizeof(Word16), 0);
  auto outputs = backend.allocate(2, total * sizeof(Word16), poisonByte);
  std::vector<Word16> data[2];
  for (int rank = 0; rank < 2; ++rank) {
    data[rank] = packsWithEmptyLookalikes(total, static_cast<unsigned>(rank + 1), lookalikes);
    inputs.write(rank, data[rank]);
  }
  const ExchangeBody<P> exchange{slots.window(),       inputs.window(), outputs.window(), packs, calls, 1,
                                 backend.wait(timeout)};
  const auto record = backend.run({2, 1, 1}, [&](int rank, const auto& grid) {
    late = rank == 1;
    exchange(rank, grid);
  });
  Outcome outcome{record.has_value(), false};
  for (int rank = 0; rank < 2; ++rank)
    outcome.wrong |= firstDifference(outputs.template read<Word16>(rank), data[1 - rank]) != -1;
  return outcome;
}

constexpr int noLookalikes = 0x3c;

/// Whether some trial of a few gave wrong data: on a busy machine a reader may happen to come late, and then sees nothing of the mutant.
bool isCaught(const std::function<Outcome()>& trial) {
  for (int i = 0; i < 50; ++i) {
    if (trial().wrong) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("mutants: the real protocols pass the same trial") {
  const auto fine = [](Outcome outcome) { return !outcome.expired && !outcome.wrong; };
  CHECK(fine(outcomeOf<PacketRows<LL16Packet>, 2>(2, 6, noLookalikes)));
  CHECK(fine(outcomeOf<LL128<LineStore::Ordered>, 16>(15, 2, noLookalikes)));
  CHECK(fine(outcomeOf<Sentinel, 2>(20, 8, Sentinel::initialByte)));
}

TEST_CASE("mutants: a packet whose halves arrive apart is read too early") {
  CHECK(isCaught([] { return outcomeOf<PacketRows<OneFlagPacket>, 2>(2, 1, noLookalikes); }));
}

TEST_CASE("mutants: a wrong flag is waited for until the deadline") {
  CHECK(outcomeOf<PacketRows<WrongFlagPacket>, 2>(2, 1, noLookalikes, 50'000'000).expired);
}

TEST_CASE("mutants: a flag that returns too soon lets old data pass") {
  CHECK(isCaught([] { return outcomeOf<PacketRows<ShortFlagPacket>, 2>(2, 6, noLookalikes); }));
}

TEST_CASE("mutants: a line's flag that overtakes its data lets old data pass") {
  CHECK(isCaught([] { return outcomeOf<FlagFirstLines, 16>(15, 1, noLookalikes); }));
}

TEST_CASE("mutants: a slot that nobody poisons again lets old data pass") {
  CHECK(isCaught([] { return outcomeOf<NoPoison, 2>(2, 8, noLookalikes); }));
}

TEST_CASE("mutants: poison that nobody announces is waited for until the deadline") {
  CHECK(outcomeOf<NoEscape, 2>(20, 1, Sentinel::initialByte, 50'000'000).expired);
}

}  // namespace mscclpp::test
