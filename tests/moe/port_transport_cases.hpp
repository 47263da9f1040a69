// Cases of moe/port_transport.hpp: dispatch and combine between ranks that reach each other through proxies only, or of
// which some have mapped each other's windows.
#pragma once

#include "port_links.hpp"

namespace mscclpp::test {

template <class RowTransport, PortOptions options = PortOptions{}>
using PortTester =
    MoeTester<RowTransport, RowKind::Scaled, MoeBody<RowTransport, RowKind::Scaled>, PortLinks<RowTransport, options>>;

template <class RowTransport = moe::PortTransport, PortOptions options = PortOptions{}>
void checkPorts(const MoeParameters& p, int blocks, int warps, unsigned seed) {
  const auto outcome = PortTester<RowTransport, options>(p, seed).run(blocks, warps);
  if (outcome.record) FAIL_CHECK(describe(*outcome.record));
  CHECK(outcome.error == "");
}

TEST_CASE("moe ports: dispatch and combine") {
  unsigned seed = 1;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int ranksPerHost : {1, 2}) {
      if (ranksPerHost > 1 && ranks < 3) continue;
      CAPTURE(ranks);
      CAPTURE(ranksPerHost);
      ++seed;
      MoeParameters p = moeParameters(ranks, 4, ranks == 2 ? 8 : 3, 11, 6, seed);
      p.ranksPerHost = ranksPerHost;
      p.isSplit = ranks % 2 == 0;
      p.hasWeights = ranks != 3;
      if (ranks == 2) p.alignment = 4;
      if (ranks == 4) p.stride = 4 * p.dimensions.maxTokens;
      // A row less than every routing needs: all ranks await the report of each.
      if (ranks == 3)
        p.capacity = static_cast<std::uint32_t>(moe::ExpertPlacement::largestCapacity(p.dimensions, 1)) - 1;
      checkPorts(p, ranks > 3 ? 1 : 2, 2, seed);
    }
  }
}

TEST_CASE("moe ports: rows of several steps, in two phases and in one") {
  for (const bool isSplit : {true, false}) {
    CAPTURE(isSplit);
    MoeParameters p = moeParameters(2, 3, 3, 4, 3, 7);
    p.rowPacks = 300;
    p.resultPacks = 299;
    p.isSplit = isSplit;
    p.sendingBlocks = 1;
    checkPorts(p, 2, 2, 7);
  }
}

TEST_CASE("moe ports: random shapes") {
  std::mt19937 random(5);
  const auto atMost = [&](unsigned most) { return static_cast<int>(random() % most) + 1; };
  for (int i = 0; i < (Backend<>::onGpu ? 30 : 6); ++i) {
    CAPTURE(i);
    MoeParameters p = moeParameters(atMost(4), atMost(12), atMost(moe::maxTopk), static_cast<std::uint32_t>(atMost(20)),
                                    3, static_cast<unsigned>(i));
    p.ranksPerHost = atMost(2);
    p.rowPacks = static_cast<std::uint32_t>(atMost(i % 4 == 2 ? 300 : 20));
    p.resultPacks = static_cast<std::uint32_t>(atMost(12));
    p.isSplit = random() % 3 == 0;
    checkPorts(p, atMost(2), atMost(Backend<>::onGpu ? 8 : 2), static_cast<unsigned>(i));
  }
}

/// Ranks that get nothing run ahead of their proxies: only the entries and counts keep the calls apart.
TEST_CASE("moe ports: calls without tokens") {
  MoeParameters p = moeParameters(3, 2, 2, 6, maxMoeCalls, 4);
  for (int call = 0; call < maxMoeCalls; ++call) {
    for (int rank = 0; rank < 3; ++rank) p.tokens[call][rank] = call % 6 == 5 && rank == 0 ? 6 : 0;
  }
  checkPorts(p, 1, 2, 4);
}

TEST_CASE("moe ports: a slow rank") {
  MoeParameters p = moeParameters(3, 2, 3, 8, maxMoeCalls, 21);
  p.slowRank = 2;
  p.slowness = 300'000;
  checkPorts(p, 1, 2, 5);
}

TEST_CASE("moe ports: over TCP, in triggers without limits") {
  MoeParameters p = moeParameters(2, 3, 3, 8, 4, 9);
  p.rowPacks = 20;
  checkPorts<moe::WidePortTransport, PortOptions{.transport = Transport::Ethernet}>(p, 2, 2, 9);
}

TEST_CASE("moe ports: a rank that is absent is named") {
  MoeParameters p = moeParameters(2, 2, 2, 4, 1, 1);
  p.absentRank = 1;
  const auto outcome = PortTester<moe::PortTransport>(p, 1).run(1, 1, 1'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
}

/// The FIFOs have no space for the entries and counts for all ranks.
TEST_CASE("moe ports: a proxy that does not run ends the call") {
  MoeParameters p = moeParameters(6, 2, 2, 4, 1, 1);
  for (int rank = 1; rank < 6; ++rank) p.tokens[0][rank] = 4;
  const auto outcome = PortTester<moe::PortTransport, PortOptions{.areRunning = false}>(p, 1).run(1, 1, 300'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
}

}  // namespace mscclpp::test
