// The library's kernels of GEMMs with a collective inside, for operands of one type.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gemm/fused_gemm.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::kernels {

/// The kernel for calls of up to so many rows.
struct GemmKernelOfRows {
  std::size_t mostRows;
  std::unique_ptr<GemmKernel> kernel;
};

/// Of `first` to `last` rows, the most of a call that these kernels have; 0: none.
using MostRows = std::function<std::size_t(std::size_t first, std::size_t last)>;

/// The compute capability that the code of these kernels for the current GPU was compiled for, times 10.
template <class Operand>
int gemmKernelsArchitecture();

/// The kernels that the calls of a layer need, in increasing order of rows, each with its scratch. Collective.
/// sharedBytes: the most of a block. Operand: bf16 or f8e4m3, the layer's. monitor: of the waits of all of them.
template <class Operand>
std::vector<GemmKernelOfRows> makeGemmKernels(Communicator& communicator, const GemmLayer& layer,
                                              std::size_t sharedBytes, const MostRows& mostRows,
                                              const std::shared_ptr<WaitMonitor>& monitor);

}  // namespace mscclpp::kernels
