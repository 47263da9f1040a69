// Plans that several tests use: all-reduces over all pairs.
#pragma once

#include "mscclpp/plan/program.hpp"

namespace mscclpp::plan {

constexpr std::vector<int> peersOf(int rank, int ranks) {
  std::vector<int> peers;
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != rank) peers.push_back(peer);
  return peers;
}

/// Every rank reduces a chunk for each of its blocks and stores the sums in the outputs of all.
constexpr Plan twoShotAllReduce(int ranks, int blocks = 1) {
  Program program({.collective = CollectiveKind::AllReduce, .ranks = ranks, .chunksPerPart = ranks * blocks});
  for (int rank = 0; rank < ranks; ++rank)
    for (int b = 0; b < blocks; ++b) {
      const auto chunkOf = [&](int owner) { return owner * blocks + b; };
      const std::vector<int> peers = peersOf(rank, ranks);
      auto block = program.block(rank, b);
      for (const int peer : peers) block.copy(input(rank, chunkOf(peer)), scratch(peer, chunkOf(rank)));
      block.signal(peers).wait(peers);
      std::vector<Chunks> contributions, results;
      for (int peer = 0; peer < ranks; ++peer) {
        contributions.push_back(peer == rank ? input(rank, chunkOf(rank)) : scratch(rank, chunkOf(peer)));
        results.push_back(output(peer, chunkOf(rank)));
      }
      block.reduce(contributions, results).signal(peers).wait(peers);
    }
  return program.finish();
}

/// Every rank sends its input to all as packets and reduces everything.
constexpr Plan oneShotAllReduce(int ranks, bool doubleScratch = true) {
  Program program({.collective = CollectiveKind::AllReduce, .ranks = ranks, .doubleScratch = doubleScratch});
  for (int rank = 0; rank < ranks; ++rank) {
    auto block = program.block(rank, 0);
    std::vector<Chunks> contributions;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) block.copy(input(rank, 0), scratch(peer, rank).packets());
      contributions.push_back(peer == rank ? input(rank, 0) : scratch(rank, peer).packets());
    }
    const Chunks result = output(rank, 0);
    block.reduce(contributions, {&result, 1});
  }
  return program.finish();
}

}  // namespace mscclpp::plan
