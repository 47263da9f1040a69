// The programs of the library: each makes the plan of an algorithm.
#pragma once

#include "mscclpp/kernels/plan/library.hpp"

namespace mscclpp::plan::library {

// all_reduce.cpp
NamedPlan ringAllReduce(const LibraryArguments& arguments);
NamedPlan oneShotAllReduce(const LibraryArguments& arguments);
NamedPlan twoShotAllReduce(const LibraryArguments& arguments);
NamedPlan halvingDoublingAllReduce(const LibraryArguments& arguments);
NamedPlan treeAllReduce(const LibraryArguments& arguments);
NamedPlan doubleTreeAllReduce(const LibraryArguments& arguments);
NamedPlan hierarchicalAllReduce(const LibraryArguments& arguments);

// gather_scatter.cpp
NamedPlan ringAllGather(const LibraryArguments& arguments);
NamedPlan allPairsAllGather(const LibraryArguments& arguments);
NamedPlan doublingAllGather(const LibraryArguments& arguments);
NamedPlan hierarchicalAllGather(const LibraryArguments& arguments);
NamedPlan ringReduceScatter(const LibraryArguments& arguments);
NamedPlan allPairsReduceScatter(const LibraryArguments& arguments);
NamedPlan treeBroadcast(const LibraryArguments& arguments);
NamedPlan treeReduce(const LibraryArguments& arguments);

// exchanges.cpp
NamedPlan allPairsAllToAll(const LibraryArguments& arguments);
NamedPlan twoStepAllToAll(const LibraryArguments& arguments);
NamedPlan threeStepAllToAll(const LibraryArguments& arguments);
NamedPlan allToNext(const LibraryArguments& arguments);

// one_sided.cpp, in MSCCL++'s language
NamedPlan pipelinedRingAllGather(const LibraryArguments& arguments);
NamedPlan portAllGather(const LibraryArguments& arguments);
NamedPlan packetAllReduce(const LibraryArguments& arguments);
NamedPlan switchAllReduce(const LibraryArguments& arguments);

using msccl::ChunkRef;
using msccl::MSCCLProgram;

inline constexpr auto input = BufferKind::Input;
inline constexpr auto output = BufferKind::Output;

/// The options of a chunk program.
inline msccl::ProgramOptions optionsOf(const LibraryArguments& arguments, const char* name,
                                       const Collective& collective) {
  return {.name = name,
          .collective = collective,
          .instances = arguments.instances,
          .protocol = arguments.protocol,
          .interleavedReplication = false,
          .ranksPerNode = arguments.ranksPerNode};
}

}  // namespace mscclpp::plan::library
