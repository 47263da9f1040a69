#include <algorithm>
#include <map>
#include <numeric>

#include "mscclpp/kernels/plan/language.hpp"
#include "programs.hpp"

namespace mscclpp::plan::library {

using namespace mscclpp::language;

namespace {

AlgoSpec specOf(const LibraryArguments& arguments, const char* name, const Collective& collective) {
  AlgoSpec spec;
  spec.name = name;
  spec.collective = collective;
  spec.worldSize = arguments.ranks;
  spec.inPlace = arguments.inPlace;
  spec.instances = arguments.instances;
  return spec;
}

/// A channel from each rank to each other.
template <class AnyChannel>
std::map<std::pair<int, int>, AnyChannel> allChannels(CollectiveProgram& program, int ranks) {
  std::map<std::pair<int, int>, AnyChannel> channels;
  for (int to = 0; to < ranks; ++to) {
    for (int from = 0; from < ranks; ++from) {
      if (from != to) channels.emplace(std::pair{from, to}, AnyChannel(program, to, from));
    }
  }
  return channels;
}

template <class Channels>
void barrierOfAll(Channels& channels) {
  for (auto& [pair, channel] : channels) channel.signal(0);
  for (auto& [pair, channel] : channels) channel.wait(0);
}

}  // namespace

NamedPlan pipelinedRingAllGather(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  CollectiveProgram program(specOf(arguments, "all_gather_pipelined_ring", AllGather(ranks, 1, arguments.inPlace)));
  // The two ends of a connection one after the other: of two ranks, each is the other's next and previous.
  std::vector<MemoryChannel> next, previous;
  for (int r = 0; r < ranks; ++r) {
    next.push_back(MemoryChannel(program, (r + 1) % ranks, r));
    previous.push_back(MemoryChannel(program, r, (r + 1) % ranks));
  }
  std::rotate(previous.begin(), previous.end() - 1, previous.end());
  for (int r = 0; r < ranks; ++r) previous[r].signal(0);
  for (int r = 0; r < ranks; ++r) next[r].wait(0);
  // Pieces of a part follow each other: while one is on its second hop, the next one is on its first.
  LoopIterationContext loop(program, 1 << 18, 1);
  for (int r = 0; r < ranks; ++r) {
    Rank rank(program, r);
    if (!arguments.inPlace) rank.copy(rank.getOutputBuffer()[r], rank.getInputBuffer()[0], 0);
  }
  for (int hop = 0; hop < ranks - 1; ++hop) {
    for (int r = 0; r < ranks; ++r) {
      const int part = (r - hop + ranks) % ranks;
      next[r].put(Rank(program, (r + 1) % ranks).getOutputBuffer()[part], Rank(program, r).getOutputBuffer()[part], 0);
      next[r].signal(0);
    }
    for (int r = 0; r < ranks; ++r) previous[r].wait(0);
  }
  loop.end();
  return program.compile();
}

NamedPlan portAllGather(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  CollectiveProgram program(specOf(arguments, "all_gather_port", AllGather(ranks, 1, arguments.inPlace)));
  auto channels = allChannels<PortChannel>(program, ranks);
  barrierOfAll(channels);
  for (int r = 0; r < ranks; ++r) {
    Rank rank(program, r);
    if (!arguments.inPlace) rank.copy(rank.getOutputBuffer()[r], rank.getInputBuffer()[0], 0);
  }
  for (auto& [pair, channel] : channels) {
    const auto& [from, to] = pair;
    channel.putWithSignal(Rank(program, to).getOutputBuffer()[from], Rank(program, from).getInputBuffer()[0], 0);
  }
  for (auto& [pair, channel] : channels) channel.wait(0);
  for (auto& [pair, channel] : channels) channel.flush(0);
  return program.compile();
}

NamedPlan packetAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  AlgoSpec spec = specOf(arguments, "all_reduce_packets", AllReduce(ranks, 1, arguments.inPlace));
  spec.protocol = "LL";
  spec.useDoubleScratchBuffer = true;
  CollectiveProgram program(spec);
  auto channels = allChannels<MemoryChannel>(program, ranks);
  std::vector<Buffer> parts, sums;
  for (int r = 0; r < ranks; ++r) {
    parts.emplace_back(program, r, ranks);
    sums.emplace_back(program, r, ranks);
  }
  for (auto& [pair, channel] : channels) {
    const auto& [from, to] = pair;
    channel.putPackets(parts[to][from], Rank(program, from).getInputBuffer()[to], 0);
  }
  for (int r = 0; r < ranks; ++r) {
    Rank rank(program, r);
    const Buffer output = rank.getOutputBuffer();
    std::vector<Chunk> others;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) others.push_back(parts[r][peer]);
    }
    rank.reduce(rank.getInputBuffer()[r], others, 0, output[r], true);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) channels.at({r, peer}).putPackets(sums[peer][r], output[r], 0);
    }
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) rank.unpackPackets(output[peer], sums[r][peer], 0);
    }
  }
  return program.compile();
}

NamedPlan switchAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  CollectiveProgram program(specOf(arguments, "all_reduce_switch", AllReduce(ranks, 1, true)));
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  SwitchChannel channel(program, all, BufferType::Input);
  auto channels = allChannels<MemoryChannel>(program, ranks);
  barrierOfAll(channels);
  for (int r = 0; r < ranks; ++r) {
    const Chunk own = Rank(program, r).getInputBuffer()[r];
    channel.atRank(r).reduce(r, 1, own, 0);
    channel.atRank(r).broadcast(own, r, 1, 0);
  }
  barrierOfAll(channels);
  return program.compile();
}

}  // namespace mscclpp::plan::library
