// Cases of moe/: dispatch and combine over both transports, with random routings.
#pragma once

#include <cstdlib>

#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "tester.hpp"
#include "tests/backend/random_shapes.hpp"

namespace mscclpp::test {

using SentinelPackets = moe::PacketTransport<Sentinel>;
using Ll16Packets = moe::PacketTransport<PacketRows<LL16Packet>>;

/// Calls of each number of ranks, one after the other in the same launch: with and without weights, in one launch and
/// in two phases, with padded, packed and fixed places for the experts.
template <class Transport, RowKind kind>
void checkRanks() {
  unsigned seed = 1;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    ++seed;
    MoeParameters p = moeParameters(ranks, ranks == 3 ? 5 : 4, ranks == 2 ? 8 : 3, ranks > 4 ? 5 : 11, 5, seed);
    p.isSplit = ranks % 2 == 0;
    p.hasWeights = ranks != 3;
    if (ranks == 2) p.alignment = 4;
    if (ranks == 4) p.stride = 4 * p.dimensions.maxTokens;
    if (ranks == 1) p.dimensions.experts = 70;
    // A row less than every routing needs: all ranks await the report of each.
    if (ranks == 3) p.capacity = static_cast<std::uint32_t>(moe::ExpertPlacement::largestCapacity(p.dimensions, 1)) - 1;
    checkMoe<Transport, kind>(p, ranks > 3 ? 1 : 2, 2, seed);
  }
}

TEST_CASE("moe: dispatch and combine by packets") {
  checkRanks<SentinelPackets, RowKind::Plain>();
}
TEST_CASE("moe: dispatch and combine by stores") {
  checkRanks<moe::StoreTransport, RowKind::Plain>();
}
TEST_CASE("moe: fp8 rows with their scales, by bulk copies") {
  checkRanks<moe::BulkTransport, RowKind::Scaled>();
}
TEST_CASE("moe: rows that are quantised on the way") {
  checkRanks<SentinelPackets, RowKind::Quantised>();
}

/// Rows of several steps, of which the last is short: both forms of rows with scales.
template <class Transport, RowKind kind>
void checkLongRows() {
  for (const std::uint32_t packs : {128u, 129u, 300u}) {
    CAPTURE(packs);
    MoeParameters p = moeParameters(2, 3, 3, 4, 3, packs);
    p.rowPacks = packs;
    p.resultPacks = packs - 1;
    p.isSplit = packs == 129;
    checkMoe<Transport, kind>(p, 2, 2, packs);
  }
}
TEST_CASE("moe: long rows") {
  checkLongRows<SentinelPackets, RowKind::Quantised>();
  checkLongRows<moe::BulkTransport, RowKind::Scaled>();
}

TEST_CASE("moe: more tokens than lanes, warps and blocks") {
  MoeParameters p = moeParameters(2, 8, 8, 150, 4, 3);
  checkMoe<SentinelPackets, RowKind::Plain>(p, 3, 1, 3);
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 1, 3, 3);
  checkMoe<moe::BulkTransport, RowKind::Scaled>(p, 1, 4, 3);
}

TEST_CASE("moe: blocks that only send, as many as all others, more, less, or all") {
  for (int sending = 1; sending <= 3; ++sending) {
    CAPTURE(sending);
    MoeParameters p = moeParameters(3, 4, 5, 20, 2, static_cast<unsigned>(sending));
    p.sendingBlocks = sending;
    p.resultPacks = sending == 1 ? 300 : 2;  // several pieces of a row, with a flag each
    if (sending == 2)
      p.capacity = static_cast<std::uint32_t>(moe::ExpertPlacement::largestCapacity(p.dimensions, 1)) - 1;
    checkMoe<moe::StoreTransport, RowKind::Plain>(p, sending == 3 ? 4 : 3, 1, static_cast<unsigned>(sending));
  }
}

TEST_CASE("moe: combines of blocks with several warps that send, and one that publishes or none") {
  MoeParameters p = moeParameters(2, 4, 5, 20, 2, 7);
  p.resultPacks = 300;
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 2, 6, 7);  // 3 of 6 warps, one of which publishes
  p.sendingBlocks = 1;
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 2, 5, 7);  // as many as one publishes for on a CPU
  p.isSplit = true;
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 2, 6, 7);  // more
}

/// Ranks to which less is sent leave gaps in what a warp sends.
TEST_CASE("moe: ranks that get different numbers of rows back") {
  for (const int blocks : {1, 2, 3}) {
    CAPTURE(blocks);
    MoeParameters p = moeParameters(4, 2, 3, 12, 2, 17);
    const std::uint32_t tokens[4] = {12, 0, 1, 7};
    for (int rank = 0; rank < 4; ++rank) {
      p.tokens[0][rank] = tokens[rank];
      p.tokens[1][rank] = tokens[(rank + 1) % 4];
    }
    p.resultPacks = 140;
    p.sendingBlocks = blocks - 1;
    checkMoe<moe::StoreTransport, RowKind::Plain>(p, blocks, 2, 17);
    checkMoe<SentinelPackets, RowKind::Plain>(p, blocks, 2, 17);
  }
}

TEST_CASE("moe: so many tokens that they are counted in segments") {
  MoeParameters p = moeParameters(2, 3, 2, 1700, 2, 3);
  p.tokens[0][0] = 1700;
  p.tokens[0][1] = 513;
  p.tokens[1][0] = 1025;
  p.tokens[1][1] = 1536;
  p.rowPacks = p.resultPacks = 1;
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 3, 1, 4);  // not more segments than blocks
  p.calls = 1;
  p.tokens[0][0] = 257;
  checkMoe<moe::StoreTransport, RowKind::Plain>(p, 4, 1, 4);  // three segments, and a block that sends early
}

TEST_CASE("moe: packets with 32-bit flags, whose numbers repeat") {
  MoeParameters p = moeParameters(3, 2, 2, 6, maxMoeCalls, 8);
  for (const std::uint64_t first : {std::uint64_t{1}, (std::uint64_t{1} << 32) - 5, (std::uint64_t{1} << 20) - 3}) {
    CAPTURE(first);
    checkMoe<Ll16Packets, RowKind::Plain>(p, 1, 2, 8, first);
  }
}

/// Of each kind.
inline int randomMoeShapes() {
  return numberOfShapes("MSCCLPP_MOE_SHAPES", 50, 12, 6);
}

/// Random numbers of ranks, experts, choices, tokens, packs, blocks and warps, and places of the experts' rows.
template <class Transport, RowKind kind>
void checkRandomShapes(unsigned seed) {
  constexpr bool onGpu = Backend<>::onGpu;
  std::mt19937 random(seed);
  const auto atMost = [&](unsigned most) { return static_cast<int>(random() % most) + 1; };
  for (int i = 0; i < randomMoeShapes(); ++i) {
    CAPTURE(seed);
    CAPTURE(i);
    const auto tokens = static_cast<std::uint32_t>(atMost(i % 8 == 0 && onGpu ? 200 : 20));
    const int topk = atMost(moe::maxTopk);
    MoeParameters p =
        moeParameters(atMost(4), atMost(i % 8 == 1 ? 300 : 12), topk, tokens, 2, static_cast<unsigned>(i));
    p.rowPacks = static_cast<std::uint32_t>(atMost(i % 8 == 2 ? 500 : 20));
    p.resultPacks = static_cast<std::uint32_t>(atMost(i % 8 == 3 ? 300 : 12));
    p.hasWeights = random() % 3 != 0;
    p.isSplit = random() % 3 == 0;
    p.sendingBlocks = static_cast<int>(random() % 3);
    const auto place = random() % 3;
    if (place == 0) p.alignment = static_cast<std::uint32_t>(atMost(9));
    if (place == 1) p.stride = static_cast<std::uint32_t>(p.dimensions.ranks) * tokens + random() % 3;
    checkMoe<Transport, kind>(p, atMost(onGpu ? 4 : 2), atMost(onGpu ? 8 : 2), static_cast<unsigned>(i));
  }
}
TEST_CASE("moe: random shapes, by packets") {
  checkRandomShapes<SentinelPackets, RowKind::Plain>(1);
}
TEST_CASE("moe: random shapes, by stores") {
  checkRandomShapes<moe::StoreTransport, RowKind::Plain>(2);
}
TEST_CASE("moe: random shapes, by bulk copies") {
  checkRandomShapes<moe::BulkTransport, RowKind::Scaled>(3);
}
TEST_CASE("moe: random shapes, quantised on the way") {
  checkRandomShapes<SentinelPackets, RowKind::Quantised>(4);
}

/// Calls of many different sizes, with one rank that is slow.
template <class Transport>
MoeOutcome runSlowly() {
  MoeParameters p = moeParameters(3, 2, 3, 8, maxMoeCalls, 21);
  p.slowRank = 2;
  p.slowness = 300'000;
  return MoeTester<Transport, RowKind::Plain>(p, 5).run(1, 2, 1'000'000'000);
}
TEST_CASE("moe: a slow rank") {
  const auto packets = runSlowly<SentinelPackets>();
  CHECK_FALSE(packets.record);
  CHECK(packets.error == "");
  const auto stores = runSlowly<moe::StoreTransport>();
  CHECK_FALSE(stores.record);
  CHECK(stores.error == "");
}

TEST_CASE("moe: rows that leave while the routing is laid out wait until their receiver has read those before") {
  MoeParameters p = moeParameters(2, 2, 2, 6, maxMoeCalls, 4);
  for (auto& call : p.tokens) call[0] = call[1] = 6;
  p.rowPacks = moe::stepPacks + 3;  // the second step of a row is read after the delay in the first
  p.dispatchOnly = true;            // a combine would keep the dispatches apart
  p.slowRank = 1;
  p.slowness = 5'000'000;
  const auto outcome = MoeTester<moe::StoreTransport, RowKind::Plain>(p, 2).run(3, 2, 1'000'000'000);
  CHECK_FALSE(outcome.record);
  CHECK(outcome.error == "");
}

TEST_CASE("moe: a rank that is absent is named") {
  MoeParameters p = moeParameters(2, 2, 2, 4, 1, 1);
  p.absentRank = 1;
  const auto outcome = MoeTester<SentinelPackets, RowKind::Plain>(p, 1).run(1, 1, 1'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
}

/// Only one rank's output is too small: the record says whose, whichever rank leaves it.
template <class Transport>
void checkSmallOutput() {
  MoeParameters p = moeParameters(3, 2, 2, 8, 1, 1);
  for (auto& tokens : p.tokens[0]) tokens = 8;
  p.smallRank = 1;
  const auto outcome = MoeTester<Transport, RowKind::Plain>(p, 1).run(2, 2, 5'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::OutputTooSmall);
  CHECK(outcome.record->peer == 1);
  CHECK(outcome.record->expected == 1);
  CHECK(outcome.record->seen > 1);
}
TEST_CASE("moe: more rows than a rank's output holds") {
  checkSmallOutput<SentinelPackets>();
  checkSmallOutput<moe::StoreTransport>();
}

/// The second dispatch only sends, with the handle of the first, which has as many tokens and has been combined.
template <class Transport>
void checkSentHandle() {
  MoeParameters p = moeParameters(2, 2, 2, 8, 2, 1);
  for (auto& call : p.tokens) call[0] = call[1] = 8;
  p.isSplit = true;
  p.sentCall = 1;
  const auto outcome = MoeTester<Transport, RowKind::Plain>(p, 1).run(2, 2, 5'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::OtherHandle);
  CHECK(outcome.record->expected == ((std::uint64_t{7} << 32) | 8));
  CHECK(outcome.record->seen == moe::Handle::incomplete);
}
TEST_CASE("moe: a combine with a handle of rows that have not been received") {
  checkSentHandle<SentinelPackets>();
  checkSentHandle<moe::StoreTransport>();
}

}  // namespace mscclpp::test
