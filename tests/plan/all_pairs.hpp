// A plan that several tests use: a two-shot all-reduce over all pairs.
#pragma once

#include "mscclpp/plan/assembler.hpp"

namespace mscclpp::plan {

/// Every rank reduces one chunk and stores the sum in the outputs of all; one block.
constexpr Plan twoShotAllReduce(int ranks) {
  Assembler assembler({.collective = CollectiveKind::AllReduce, .ranks = ranks, .chunksPerPart = ranks});
  const auto operand = [](int owner, int rank, BufferKind buffer, int chunk) {
    return Operand{.buffer = buffer,
                   .access = owner == rank ? Access::Local : Access::Memory,
                   .rank = static_cast<std::int16_t>(owner),
                   .first = chunk};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    assembler.setScratchChunks(rank, ranks);
    std::vector<int> channels;
    std::vector<Operand> contributions, results;
    for (int peer = 0; peer < ranks; ++peer) {
      results.push_back(operand(peer, rank, BufferKind::Output, rank));
      contributions.push_back(operand(rank, rank, peer == rank ? BufferKind::Input : BufferKind::Scratch, peer));
      if (peer == rank) continue;
      channels.push_back(assembler.addChannel(rank, Access::Memory, peer));
      const Operand source = operand(rank, rank, BufferKind::Input, peer);
      const Operand slot = operand(peer, rank, BufferKind::Scratch, rank);
      assembler.transfer(rank, 0, {&source, 1}, {&slot, 1}, 1);
    }
    const auto exchangeSignals = [&] {
      assembler.add(rank, 0, {.kind = OperationKind::Sync});
      assembler.synchronise(rank, 0, OperationKind::Signal, channels);
      assembler.synchronise(rank, 0, OperationKind::Wait, channels);
      assembler.add(rank, 0, {.kind = OperationKind::Sync});
    };
    exchangeSignals();
    assembler.transfer(rank, 0, contributions, results, 1);
    exchangeSignals();
  }
  return assembler.finish();
}

}  // namespace mscclpp::plan
