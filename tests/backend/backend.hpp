// The backend on which the device tests of a file run: CPU threads in a .cpp file, GPUs in a .cu file.
#pragma once

#include "mscclpp/config.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#else
#include "emulated.hpp"
#endif

namespace mscclpp::test {

// Width: lanes per warp, if the backend has a choice.
#if defined(__CUDACC__)
template <int Width = 4>
using Backend = GpuBackend;
#else
template <int Width = 4>
using Backend = EmulatedBackend<Width>;
#endif

}  // namespace mscclpp::test
