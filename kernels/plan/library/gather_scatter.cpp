#include "programs.hpp"

namespace mscclpp::plan::library {

namespace {

/// With each rank's input where it belongs in its output.
MSCCLProgram makeAllGather(const LibraryArguments& arguments, const char* name) {
  MSCCLProgram program(optionsOf(arguments, name, AllGather(arguments.ranks, 1, arguments.inPlace)));
  for (int r = 0; r < arguments.ranks; ++r) program.chunk(r, input, 0).copy(r, output, r);
  return program;
}

}  // namespace

NamedPlan ringAllGather(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program = makeAllGather(arguments, "all_gather_ring");
  for (int part = 0; part < ranks; ++part) {
    ChunkRef chunk = program.chunk(part, output, part);
    for (int hop = 1; hop < ranks; ++hop) chunk = chunk.copy((part + hop) % ranks, "", -1, {.ch = 0});
  }
  return program.compile();
}

NamedPlan allPairsAllGather(const LibraryArguments& arguments) {
  MSCCLProgram program = makeAllGather(arguments, "all_gather_all_pairs");
  for (int part = 0; part < arguments.ranks; ++part) {
    for (int peer = 0; peer < arguments.ranks; ++peer) {
      if (peer != part) program.chunk(part, output, part).copy(peer);
    }
  }
  return program.compile();
}

NamedPlan doublingAllGather(const LibraryArguments& arguments) {
  MSCCLProgram program = makeAllGather(arguments, "all_gather_doubling");
  for (int distance = 1; distance < arguments.ranks; distance *= 2) {
    for (int r = 0; r < arguments.ranks; ++r) {
      const int first = r / distance * distance;
      // Each part is one operation, since instances divide parts.
      for (int part = first; part < first + distance; ++part) program.chunk(r, output, part).copy(r ^ distance);
    }
  }
  return program.compile();
}

NamedPlan hierarchicalAllGather(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode, nodes = arguments.ranks / perNode;
  MSCCLProgram program = makeAllGather(arguments, "all_gather_hierarchical");
  const auto rank = [&](int node, int local) { return node * perNode + local; };
  for (int part = 0; part < arguments.ranks; ++part) {
    const int own = part / perNode, local = part % perNode;
    for (int node = 0; node < nodes; ++node) {
      // To the rank with the same place in the other node, and from there to all of that node.
      if (node != own) program.chunk(part, output, part).copy(rank(node, local));
      for (int peer = 0; peer < perNode; ++peer) {
        if (peer != local) program.chunk(rank(node, local), output, part).copy(rank(node, peer));
      }
    }
  }
  return program.compile();
}

NamedPlan ringReduceScatter(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program(optionsOf(arguments, "reduce_scatter_ring", ReduceScatter(ranks, 1, arguments.inPlace)));
  for (int part = 0; part < ranks; ++part) {
    ChunkRef sum = program.chunk((part + 1) % ranks, input, part);
    for (int hop = 2; hop <= ranks; ++hop) {
      const int rank = (part + hop) % ranks;
      ChunkRef own = program.chunk(rank, input, part);
      own = hop == ranks ? own.copy(rank, output, 0) : own.copy(rank, "sums", part);
      sum = own.reduce(sum, {.ch = 0});
    }
  }
  return program.compile();
}

NamedPlan allPairsReduceScatter(const LibraryArguments& arguments) {
  const int ranks = arguments.ranks;
  MSCCLProgram program(optionsOf(arguments, "reduce_scatter_all_pairs", ReduceScatter(ranks, 1, arguments.inPlace)));
  for (int r = 0; r < ranks; ++r) {
    ChunkRef sum = program.chunk(r, input, r).copy(r, output, 0);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) sum.reduce(program.chunk(peer, input, r).copy(r, "parts", peer));
    }
  }
  return program.compile();
}

NamedPlan treeBroadcast(const LibraryArguments& arguments) {
  MSCCLProgram program(optionsOf(arguments, "broadcast_tree", Broadcast(arguments.ranks, 1, arguments.inPlace)));
  program.chunk(0, input, 0).copy(0, output, 0);
  for (int rank = 1; rank < arguments.ranks; ++rank) program.chunk(rank & (rank - 1), output, 0).copy(rank);
  return program.compile();
}

NamedPlan treeReduce(const LibraryArguments& arguments) {
  MSCCLProgram program(optionsOf(arguments, "reduce_tree", Reduce(arguments.ranks, 1, arguments.inPlace)));
  std::vector<ChunkRef> sums;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const ChunkRef own = program.chunk(rank, input, 0);
    sums.push_back(rank == 0 ? own.copy(0, output, 0) : own);
  }
  for (int rank = arguments.ranks - 1; rank > 0; --rank) {
    const int parent = rank & (rank - 1);
    // Only the root has an output: inner ranks add up in scratch.
    if (parent != 0 && sums[parent].buffer() == "input") sums[parent] = sums[parent].copy(parent, "sum", 0);
    sums[parent].reduce(sums[rank]);
  }
  return program.compile();
}

}  // namespace mscclpp::plan::library
