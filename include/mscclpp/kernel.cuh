// The launcher of the generic kernel of all collectives.
#pragma once

#include <cuda_runtime.h>

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective_kernel.cuh"

namespace mscclpp {

/// Enqueues collectiveKernel on stream; graphs can capture it. The kernel may start before the previous one of the
/// stream has ended (programmatic dependent launch), but accesses memory only after that. Returns the error of the
/// launch: cudaErrorInvalidConfiguration for a shape outside the limits, cudaErrorInvalidValue if Collective::accepts
/// returns false.
template <class Collective, class Source, class Sink>
cudaError_t launch(LaunchShape shape, cudaStream_t stream, const typename Collective::Args& args, const Source& source,
                   const Sink& sink) {
  if (shape.blocks < 1 || shape.blocks > maxBlocks || shape.threads < 32 || shape.threads % 32 != 0 ||
      shape.threads > Collective::maxBlockThreads) {
    return cudaErrorInvalidConfiguration;
  }
  if constexpr (requires { Collective::accepts(args, shape); }) {
    if (!Collective::accepts(args, shape)) return cudaErrorInvalidValue;
  }
  cudaLaunchAttribute overlap[1] = {};
  overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.stream = stream;
  config.attrs = overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, collectiveKernel<Collective, Source, Sink>, args, source, sink);
}

}  // namespace mscclpp
