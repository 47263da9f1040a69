// The run-time arguments of an all-reduce call, and the look-up of a compiled variant for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/tile_rings.hpp"

struct CUstream_st;

namespace mscclpp::kernels {

/// The arguments of a call; those of AllReduceArgs and of the launch.
struct AllReduceCall {
  int rank;
  int ranks;
  std::byte* const* window;  ///< `ranks` addresses
  std::uint64_t* epochs;
  std::size_t maxBytes;    ///< of the longest message that fits in the scratch; packet algorithms only
  PipelineShape pipeline;  ///< of the scratch; pipelined algorithms only
  BoundedWait wait;
  const void* input;
  void* output;
  std::size_t count;
  LaunchShape shape;    ///< GPU only
  CUstream_st* stream;  ///< GPU only
  TraceBuffer trace;    ///< traced variants only
};

/// Runs the call (CPU) or enqueues it (GPU). Returns 0 or a cudaError_t.
using AllReduceFunction = int (*)(const AllReduceCall&);

/// The compiled variant of algorithm `algorithm`, an index in allReduceAlgorithms, for T, op and a team of `ranks`
/// ranks; null if there is none.
namespace gpu {
template <class T>
AllReduceFunction findAllReduce(std::size_t algorithm, ReduceOp op, int ranks);
template <class T>
AllReduceFunction findTracedAllReduce(std::size_t algorithm, ReduceOp op, int ranks);
}  // namespace gpu
namespace cpu {
template <class T>
AllReduceFunction findAllReduce(std::size_t algorithm, ReduceOp op, int ranks);
template <class T>
AllReduceFunction findTracedAllReduce(std::size_t algorithm, ReduceOp op, int ranks);
}  // namespace cpu

}  // namespace mscclpp::kernels
