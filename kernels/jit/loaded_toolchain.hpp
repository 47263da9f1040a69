// NVRTC as this process has loaded it.
#pragma once

#include "kernels/jit/nvrtc.hpp"
#include "mscclpp/jit/toolchain.hpp"

namespace mscclpp::jit::detail {

/// Loaded at the first call; throws as toolchain() does.
const Nvrtc& nvrtc();

}  // namespace mscclpp::jit::detail
