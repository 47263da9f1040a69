// The compiled GEMMs of CUTLASS with a collective inside: those of the build option cutlass_gemms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/gemm/rates.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::kernels {

/// Makes the kernels of one collective, collectively, for calls of up to maxRows rows that cutlassAccepts(), each of
/// which runs as planCutlassGemm() says. All ranks pass the same place and layer here, and the same most blocks to each
/// call. monitor: of their waits. Arrays may lie anywhere, and the sizes that the layer lets change from call to call
/// may be any that are an int: arrays that TMA cannot read or write are copied, in memory of the stream.
using MakeCutlassGemm = std::unique_ptr<GemmKernel> (*)(Communicator& communicator, const GemmPlace& place,
                                                        const GemmLayer& layer, std::size_t maxRows,
                                                        std::shared_ptr<WaitMonitor> monitor);

/// Null if the kernels for so many ranks are not compiled.
MakeCutlassGemm findCutlassGemm(GemmCollective collective, int ranks, DataType operands);

template <GemmCollective collective, int ranks, DataType operands>
std::unique_ptr<GemmKernel> makeCutlassGemm(Communicator& communicator, const GemmPlace& place, const GemmLayer& layer,
                                            std::size_t maxRows, std::shared_ptr<WaitMonitor> monitor);

/// The blocks of such a kernel that certainly have room where a GpuBudget gives it `slots` of the multiprocessors; 0:
/// too few to be worth it. Its blocks come in pairs on one of the GPU's 8 groups of multiprocessors (GPC), on each of
/// which other kernels, which have the rest, may leave an odd multiprocessor.
constexpr int cutlassGemmBlocks(int slots, int multiprocessors) {
  constexpr int groups = 8, fewest = 32;
  const int blocks = (slots - std::min(groups, multiprocessors - slots)) / 2 * 2;
  return blocks < fewest ? 0 : blocks;
}

}  // namespace mscclpp::kernels
