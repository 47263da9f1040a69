// The source text of a kernel for one rank of a plan.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/plan/execution.hpp"
#include "mscclpp/plan/rank_program.hpp"

namespace mscclpp::kernels {

/// Successive blocks that are alike: their operations differ only in values that grow by the same step from each block
/// to the next.
struct RoleBlocks {
  int first;
  int count;
};

/// The fewest roles of the blocks of a rank, in order.
std::vector<RoleBlocks> rolesOf(const plan::RankProgram& program);

/// The transfers of all roles: NVRTC takes about 0.3 s for each, and more for each of many.
int transfersOf(const plan::RankProgram& program);
inline constexpr int mostCompiledTransfers = 64;

/// What the code of a plan depends on beside the rank's program.
struct PlanVariant {
  DataType type;
  ReduceOp op;  ///< SUM for plans that do not reduce
  plan::PacketFormat format;
  int chunksPerPart;
  int threads;  ///< the most per block
};

/// The most threads of a block: enough to saturate a link, with registers for loads of several packs.
inline constexpr int mostPlanThreads = 512;
/// The name of the kernel in the text.
inline constexpr const char* planKernelName = "mscclpp::plan::rankKernel";

/// CUDA C++: a kernel whose parameter is ExecutionArgs, for the blocks of the rank.
std::string sourceOf(const plan::RankProgram& program, const PlanVariant& variant);

}  // namespace mscclpp::kernels
