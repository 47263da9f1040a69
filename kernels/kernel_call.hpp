// The run-time arguments of a compiled kernel, and the look-up of a kernel for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/kernels/collective_call.hpp"

struct CUstream_st;

namespace mscclpp::kernels {

/// The arguments of a kernel, those of the collective's Args and of the launch. Elements are those of the call where it
/// reduces, bytes otherwise.
struct KernelCall {
  int rank;
  int ranks;
  std::byte* const* window;  ///< `ranks` addresses
  std::uint64_t* epochs;
  std::size_t capacity;    ///< bytes of the longest message that fits in the scratch; packet algorithms only
  PipelineShape pipeline;  ///< of the scratch; pipelined algorithms only
  BoundedWait wait;
  const void* input;
  void* output;
  std::byte* const* outputs;  ///< `ranks` addresses; algorithms with Link::Outputs only
  std::size_t count;
  Reduction reduction;
  int root;
  int destination;
  int origin;
  std::size_t receivedCount;
  const std::size_t* counts;  ///< `ranks` counts, and offsets; collectives with variable counts only
  const std::size_t* offsets;
  LaunchShape shape;                       ///< GPU only
  CUstream_st* stream;                     ///< GPU only
  TraceBuffer trace;                       ///< traced kernels only
  std::span<const CollectiveCall> joined;  ///< joined kernels only: the calls that are performed as this one
  /// GPU only
  KernelStart start = KernelStart::Early;
};

/// Runs the call (CPU) or enqueues it (GPU). Returns 0 or a cudaError_t.
using KernelFunction = int (*)(const KernelCall&);

// Of each backend: the kernels of algorithm `algorithm`, an index in algorithmTable, for a team of `ranks` ranks; null
// if there are none.
//   findReduction<T>: of a collective that reduces elements T
//   findTracedReduction<T>: the same, with tracing of its stages
//   findJoinedReduction<T>: the same, for several calls as one
//   findMover: of another collective, for bytes
namespace gpu {
template <class T>
KernelFunction findReduction(std::size_t algorithm, int ranks);
template <class T>
KernelFunction findTracedReduction(std::size_t algorithm, int ranks);
template <class T>
KernelFunction findJoinedReduction(std::size_t algorithm, int ranks);
KernelFunction findMover(std::size_t algorithm, int ranks);
}  // namespace gpu
namespace cpu {
template <class T>
KernelFunction findReduction(std::size_t algorithm, int ranks);
template <class T>
KernelFunction findTracedReduction(std::size_t algorithm, int ranks);
template <class T>
KernelFunction findJoinedReduction(std::size_t algorithm, int ranks);
KernelFunction findMover(std::size_t algorithm, int ranks);
}  // namespace cpu

}  // namespace mscclpp::kernels
