// The generic kernel of all collectives. Without the CUDA runtime's headers, so that NVRTC compiles it too.
#pragma once

#include "mscclpp/arch/launch.hpp"
#include "mscclpp/arch/pass.hpp"
#include "mscclpp/basic/group.hpp"

namespace mscclpp {

/// Runs a collective over the whole grid. Its parameters are __grid_constant__, so a peer's address is read from
/// constant memory.
template <class Collective, class Source, class Sink>
__global__ void __launch_bounds__(Collective::maxBlockThreads, 1)
    collectiveKernel(const __grid_constant__ typename Collective::Args args, const __grid_constant__ Source source,
                     const __grid_constant__ Sink sink) {
  if constexpr (arch::devicePass) {
    if constexpr (requires { requires Collective::awaitsPrerequisites; }) {
      arch::launchDependents();
    } else {
      arch::waitForPrerequisites();
      // Not earlier: the next kernel is resident beside this one only, not beside the previous one too.
      arch::launchDependents();
    }
    Collective::run(gpu::LinearGrid(), args, source, sink);
  }
}

}  // namespace mscclpp
