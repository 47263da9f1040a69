// From operations on chunks to instructions of thread blocks: fusion, channels, blocks, dependences.
#pragma once

#include <vector>

#include "instructions.hpp"

namespace mscclpp::plan {

/// A copy or a reduction of a chunk program.
struct TracedOperation {
  struct Place {
    int rank = 0;
    ChunkPlace place;
  };

  bool reduces = false;
  Place source;
  Place destination;
  int count = 1;
  int sendBlock = -1;     ///< -1: the compiler chooses
  int receiveBlock = -1;  ///< -1: the compiler chooses
  int channel = -1;       ///< -1: the compiler chooses
  int origin = -1;
};

struct ScheduleOptions {
  bool manualBlocks = false;
  bool fuse = true;
};

/// Fills program.ranks[].blocks. `buffers`: the sizes of the buffers, which tell what is the same chunk in place.
/// Throws Error(InvalidUsage) if the blocks or channels that operations name cannot be had.
void schedule(InstructionProgram& program, const Draft& buffers, const std::vector<TracedOperation>& operations,
              const ScheduleOptions& options);

/// The plan of a program, with positions of its data.
NamedPlan compileInstructions(const InstructionProgram& program);

}  // namespace mscclpp::plan
