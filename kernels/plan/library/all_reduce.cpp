#include "programs.hpp"

namespace mscclpp::plan::library {

namespace {

/// Chunks of a rank's input that sums may be added to: in place they are the output.
ChunkRef accumulator(const MSCCLProgram& program, int rank, int index, int size = 1) {
  return program.chunk(rank, input, index, size).copy(rank, output, index);
}

MSCCLProgram makeProgram(const LibraryArguments& arguments, const char* name, int chunkFactor = 1) {
  return MSCCLProgram(optionsOf(arguments, name, AllReduce(arguments.ranks, chunkFactor, arguments.inPlace)));
}

/// The sum of `parts` in their order, in `target`; scratch holds it meanwhile, since a part may be `target`'s memory.
void sumInOrder(const std::vector<ChunkRef>& parts, int rank, int index) {
  ChunkRef sum = parts.front().copy(rank, "sum", 0);
  for (std::size_t i = 1; i < parts.size(); ++i) sum.reduce(parts[i]);
  sum.copy(rank, output, index);
}

/// A reduction to the root of a tree of ranks and a broadcast from it. parent(root) is -1; children come after parents
/// in `order`.
template <class Parent>
void reduceAndBroadcast(MSCCLProgram& program, const std::vector<int>& order, const Parent& parent, int index,
                        int size) {
  std::vector<ChunkRef> sums;
  for (int r = 0; r < static_cast<int>(order.size()); ++r) sums.push_back(accumulator(program, r, index, size));
  for (auto rank = order.rbegin(); rank != order.rend(); ++rank) {
    if (parent(*rank) >= 0) sums[parent(*rank)].reduce(sums[*rank]);
  }
  for (const int rank : order) {
    if (parent(rank) >= 0) program.chunk(parent(rank), output, index, size).copy(rank);
  }
}

}  // namespace

NamedPlan ringAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_ring");
  for (int part = 0; part < ranks; ++part) {
    ChunkRef sum = program.chunk((part + 1) % ranks, input, part);
    for (int hop = 2; hop <= ranks; ++hop)
      sum = accumulator(program, (part + hop) % ranks, part).reduce(sum, {.ch = 0});
    for (int hop = 1; hop < ranks; ++hop) sum = sum.copy((part + hop) % ranks, "", -1, {.ch = 0});
  }
  return program.compile();
}

NamedPlan oneShotAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_one_shot");
  std::vector<std::vector<ChunkRef>> parts(ranks);
  for (int r = 0; r < ranks; ++r) {
    for (int peer = 0; peer < ranks; ++peer) {
      const ChunkRef part = program.chunk(peer, input, 0, ranks);
      parts[r].push_back(peer == r ? part : part.copy(r, "parts", peer * ranks));
    }
  }
  // In the order of ranks: all ranks then compute the same bits.
  for (int r = 0; r < ranks; ++r) sumInOrder(parts[r], r, 0);
  return program.compile();
}

NamedPlan twoShotAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_two_shot");
  for (int r = 0; r < ranks; ++r) {
    ChunkRef sum = accumulator(program, r, r);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) sum.reduce(program.chunk(peer, input, r).copy(r, "parts", peer));
    }
  }
  for (int r = 0; r < ranks; ++r) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) program.chunk(r, output, r).copy(peer);
    }
  }
  return program.compile();
}

NamedPlan halvingDoublingAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_halving_doubling");
  if (!arguments.inPlace) {
    for (int r = 0; r < ranks; ++r) accumulator(program, r, 0, ranks);
  }
  // Of the chunks that a rank still has to do with, its partner takes the half with the partner's number.
  for (int distance = ranks / 2; distance >= 1; distance /= 2) {
    for (int r = 0; r < ranks; ++r) {
      const int partner = r ^ distance, first = partner / distance * distance;
      program.chunk(partner, output, first, distance).reduce(program.chunk(r, output, first, distance));
    }
  }
  for (int distance = 1; distance < ranks; distance *= 2) {
    for (int r = 0; r < ranks; ++r) {
      program.chunk(r, output, r / distance * distance, distance).copy(r ^ distance);
    }
  }
  return program.compile();
}

NamedPlan treeAllReduce(const LibraryArguments& arguments) {
  MSCCLProgram program = makeProgram(arguments, "all_reduce_tree");
  std::vector<int> order;
  for (int r = 0; r < arguments.ranks; ++r) order.push_back(r);
  // A binomial tree: a rank's parent lacks its lowest one bit.
  reduceAndBroadcast(
      program, order, [](int rank) { return rank == 0 ? -1 : rank & (rank - 1); }, 0, arguments.ranks);
  return program.compile();
}

NamedPlan doubleTreeAllReduce(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_double_tree", 2);
  // Two binary trees, each for half of the data; inner ranks of one are leaves of the other, which is its mirror image
  // (Sanders, Speck, Traff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009).
  const auto parent = [](int rank) { return rank == 0 ? -1 : (rank - 1) / 2; };
  std::vector<int> order, mirrored;
  for (int r = 0; r < ranks; ++r) {
    order.push_back(r);
    mirrored.push_back(ranks - 1 - r);
  }
  reduceAndBroadcast(program, order, parent, 0, ranks);
  const auto mirror = [&](int rank) {
    const int of = parent(ranks - 1 - rank);
    return of < 0 ? -1 : ranks - 1 - of;
  };
  reduceAndBroadcast(program, mirrored, mirror, ranks, ranks);
  return program.compile();
}

NamedPlan hierarchicalAllReduce(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode, nodes = arguments.ranks / perNode;
  MSCCLProgram program = makeProgram(arguments, "all_reduce_hierarchical");
  const auto rank = [&](int node, int local) { return node * perNode + local; };
  // Within a node, rank `local` sums up chunks [local * nodes, (local + 1) * nodes).
  for (int node = 0; node < nodes; ++node) {
    for (int local = 0; local < perNode; ++local) {
      ChunkRef sum = accumulator(program, rank(node, local), local * nodes, nodes);
      for (int peer = 0; peer < perNode; ++peer) {
        if (peer == local) continue;
        sum.reduce(program.chunk(rank(node, peer), input, local * nodes, nodes)
                       .copy(rank(node, local), "of node", peer * nodes));
      }
    }
  }
  // Between nodes, each of the ranks with the same place in their nodes sums up one of these chunks, and shares it.
  for (int local = 0; local < perNode; ++local) {
    for (int node = 0; node < nodes; ++node) {
      const int chunk = local * nodes + node;
      ChunkRef sum = program.chunk(rank(node, local), output, chunk);
      for (int other = 0; other < nodes; ++other) {
        if (other == node) continue;
        sum.reduce(program.chunk(rank(other, local), output, chunk).copy(rank(node, local), "of nodes", other));
      }
    }
    for (int node = 0; node < nodes; ++node) {
      for (int other = 0; other < nodes; ++other) {
        if (other != node) program.chunk(rank(node, local), output, local * nodes + node).copy(rank(other, local));
      }
    }
  }
  for (int node = 0; node < nodes; ++node) {
    for (int local = 0; local < perNode; ++local) {
      for (int peer = 0; peer < perNode; ++peer) {
        if (peer != local) program.chunk(rank(node, local), output, local * nodes, nodes).copy(rank(node, peer));
      }
    }
  }
  return program.compile();
}

}  // namespace mscclpp::plan::library
