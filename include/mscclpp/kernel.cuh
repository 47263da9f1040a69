// The launcher of the generic kernel of all collectives.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective_kernel.cuh"

namespace mscclpp {

namespace detail {

/// Bytes of dynamic shared memory that every kernel may use without asking.
inline constexpr std::size_t defaultSharedBytes = 48 * 1024;

/// Allows a kernel `bytes` bytes of dynamic shared memory on the current device. The limit is set to the most that the
/// device has: concurrent calls set the same value, and how much a launch gets does not depend on it. Not a stream
/// operation, hence nothing that a graph captures; the check costs less than a launch.
template <class Kernel>
cudaError_t allowSharedMemory(Kernel* kernel, std::size_t bytes) {
  if (bytes <= defaultSharedBytes) return cudaSuccess;
  // In a capture, loading the kernel for the first time may make calls that the global and thread-local modes reject.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
  if (error != cudaSuccess) return error;
  cudaFuncAttributes attributes;
  error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess && bytes > static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes)) {
    int device = 0;
    int most = 0;
    error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
      error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    const std::size_t limit = static_cast<std::size_t>(most) - attributes.sharedSizeBytes;
    if (error == cudaSuccess) {
      error = bytes > limit
                  ? cudaErrorInvalidConfiguration
                  : cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(limit));
    }
  }
  const cudaError_t restored = cudaThreadExchangeStreamCaptureMode(&mode);
  return error != cudaSuccess ? error : restored;
}

}  // namespace detail

/// Enqueues collectiveKernel on stream; graphs can capture it. With KernelStart::Early the kernel may start before the
/// previous one of the stream has ended (programmatic dependent launch), but accesses memory only after that; unless
/// the collective awaits the previous kernel itself (concept Collective), no third kernel of the library is resident
/// with the two. A collective that uses shared memory (grid.sharedMemory()) declares
/// `static std::size_t sharedBytes(const Args&, LaunchShape)`, the bytes for each block; more than 48 KiB are requested
/// from the device here. Returns the error of the launch: cudaErrorInvalidConfiguration for a shape outside the limits
/// or more shared memory than a block of the device can have, cudaErrorInvalidValue if Collective::accepts returns
/// false.
template <class Collective, class Source, class Sink>
cudaError_t launch(LaunchShape shape, cudaStream_t stream, const typename Collective::Args& args, const Source& source,
                   const Sink& sink, KernelStart start = KernelStart::Early) {
  if (shape.blocks < 1 || shape.blocks > maxBlocks || shape.threads < 32 || shape.threads % 32 != 0 ||
      shape.threads > Collective::maxBlockThreads) {
    return cudaErrorInvalidConfiguration;
  }
  if constexpr (requires { Collective::accepts(args, shape); }) {
    if (!Collective::accepts(args, shape)) return cudaErrorInvalidValue;
  }
  constexpr auto kernel = collectiveKernel<Collective, Source, Sink>;
  cudaLaunchConfig_t config = {};
  if constexpr (requires { Collective::sharedBytes(args, shape); }) {
    config.dynamicSmemBytes = Collective::sharedBytes(args, shape);
    const cudaError_t error = detail::allowSharedMemory(kernel, config.dynamicSmemBytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap[1] = {};
  overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap[0].val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.stream = stream;
  config.attrs = overlap;
  config.numAttrs = start == KernelStart::Early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args, source, sink);
}

}  // namespace mscclpp
