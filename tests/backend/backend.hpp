// The backend that the device tests of this file run on: CPU threads in a .cpp file, GPUs in a .cu file.
#pragma once

#include "mscclpp/config.hpp"

#if defined(__CUDACC__)
#include "backend/gpu.cuh"
#else
#include "backend/emulated.hpp"
#endif

namespace mscclpp::test {

// Width: lanes of a warp, where it can be chosen.
#if defined(__CUDACC__)
template <int Width = 4>
using Backend = GpuBackend;
#else
template <int Width = 4>
using Backend = EmulatedBackend<Width>;
#endif

}  // namespace mscclpp::test
