#include "programs.hpp"

namespace mscclpp::plan::library {

namespace {

/// Chunk `to` of a rank's input is for rank `to`.
MSCCLProgram makeAllToAll(const LibraryArguments& arguments, const char* name) {
  return MSCCLProgram(optionsOf(arguments, name, AllToAll(arguments.ranks)));
}

}  // namespace

NamedPlan allPairsAllToAll(const LibraryArguments& arguments) {
  MSCCLProgram program = makeAllToAll(arguments, "all_to_all_all_pairs");
  for (int from = 0; from < arguments.ranks; ++from) {
    for (int to = 0; to < arguments.ranks; ++to) program.chunk(from, input, to).copy(to, output, from);
  }
  return program.compile();
}

NamedPlan twoStepAllToAll(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode, nodes = arguments.ranks / perNode;
  MSCCLProgram program = makeAllToAll(arguments, "all_to_all_two_step");
  const auto rank = [&](int node, int local) { return node * perNode + local; };
  // A node's data for a rank of another node is collected by the rank with the same place, and sent in one message.
  for (int node = 0; node < nodes; ++node) {
    for (int to = 0; to < arguments.ranks; ++to) {
      const int other = to / perNode, place = to % perNode;
      for (int local = 0; local < perNode; ++local) {
        const ChunkRef chunk = program.chunk(rank(node, local), input, to);
        if (other == node) {
          chunk.copy(to, output, rank(node, local));
        } else {
          chunk.copy(rank(node, place), "collected", other * perNode + local);
        }
      }
      if (other == node) continue;
      const ChunkRef all = program.chunk(rank(node, place), "collected", other * perNode, perNode);
      if (arguments.instances == 1) {
        all.copy(to, output, node * perNode);
      } else {
        int from = node * perNode;
        for (const ChunkRef& one : all.split(perNode)) one.copy(to, output, from++);
      }
    }
  }
  return program.compile();
}

NamedPlan threeStepAllToAll(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode, nodes = arguments.ranks / perNode;
  MSCCLProgram program = makeAllToAll(arguments, "all_to_all_three_step");
  const auto rank = [&](int node, int local) { return node * perNode + local; };
  for (int node = 0; node < nodes; ++node) {
    for (int other = 0; other < nodes; ++other) {
      // One rank of each node has to do with the other node: all data between the two is one message.
      const int sender = rank(node, other % perNode), receiver = rank(other, node % perNode);
      const int slot = other * perNode * perNode, arrived = node * perNode * perNode;
      for (int from = 0; from < perNode; ++from) {
        for (int to = 0; to < perNode; ++to) {
          const ChunkRef chunk = program.chunk(rank(node, from), input, rank(other, to));
          if (other == node) {
            chunk.copy(rank(other, to), output, rank(node, from));
          } else {
            chunk.copy(sender, "collected", slot + from * perNode + to);
          }
        }
      }
      if (other == node) continue;
      program.chunk(sender, "collected", slot, perNode * perNode).copy(receiver, "arrived", arrived);
      for (int from = 0; from < perNode; ++from) {
        for (int to = 0; to < perNode; ++to) {
          program.chunk(receiver, "arrived", arrived + from * perNode + to)
              .copy(rank(other, to), output, rank(node, from));
        }
      }
    }
  }
  return program.compile();
}

NamedPlan allToNext(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode, ranks = arguments.ranks;
  Collective collective = TestCollective(ranks, perNode, perNode);
  MSCCLProgram program(optionsOf(arguments, "all_to_next", collective));
  for (int from = 0; from + 1 < ranks; ++from) {
    const int to = from + 1;
    for (int k = 0; k < perNode; ++k) {
      program.expect(to, k, {{from, k}});
      const ChunkRef chunk = program.chunk(from, input, k);
      if (from / perNode == to / perNode) {
        chunk.copy(to, output, k);
        continue;
      }
      // Between nodes all ranks of both nodes help: chunk k goes through the k-th of each.
      const int helper = from / perNode * perNode + k, receiver = to / perNode * perNode + k;
      chunk.copy(helper, "leaving", 0).copy(receiver, "entering", 0).copy(to, output, k);
    }
  }
  return program.compile();
}

}  // namespace mscclpp::plan::library
