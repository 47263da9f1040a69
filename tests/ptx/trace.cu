// Tracing: nothing of it where there is no trace, and one store and one read of the clock for an event.
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/traced.hpp"

using namespace mscclpp;

namespace {

constexpr TraceId mark = userTraceId(3);

template <class Grid>
__device__ void work(const Grid& grid, int* data) {
  auto&& trace = traceOf(grid);
  const TraceSpan span(trace, mark, data[0]);
  data[grid.block().rank()] = 1;
  trace.point(mark, data[1]);
  data[grid.block().rank() + 64] = 2;
}

using Reduce = AllReduce<float, Sum, AllReduceConfig{Protocol::LL16, Pattern::TwoShot, Schedule::Whole, 4}>;
using Lines = AllReduce<float, Sum, AllReduceConfig{Protocol::LL128, Pattern::TwoShot, Schedule::Whole, 4}>;

}  // namespace

__global__ void byHand(int* data) {
  data[gpu::Block().rank()] = 1;
  data[gpu::Block().rank() + 64] = 2;
  // PTX: st\.global\.u32
  // PTX: st\.global\.u32
}
__global__ void untraced(int* data) {
  work(gpu::Grid(), data);
  // PTX-SAME: byHand
}
__global__ void withNoTrace(int* data) {
  NoTrace none;
  work(TracedGrid(gpu::Grid(), none), data);
  // PTX-SAME: byHand
}

__global__ void reduce(const __grid_constant__ Reduce::Args args, const float* in, float* out) {
  Reduce::run(gpu::Grid(), args, LoadFrom<float>(in), StoreTo<float>(out));
  // PTX: ld\.relaxed\.sys
  // PTX-NOT: clock64
}
__global__ void reduceWithNoTrace(const __grid_constant__ Reduce::Args args, const float* in, float* out) {
  NoTrace none;
  Reduce::run(TracedGrid(gpu::Grid(), none), args, LoadFrom<float>(in), StoreTo<float>(out));
  // PTX-SAME: reduce
}

// A line is stored by all lanes at once: they meet again after one of them has recorded that it waited.
__global__ void tracedLines(const __grid_constant__ Traced<Lines>::Args args, const float* in, float* out) {
  Traced<Lines>::run(gpu::Grid(), args, LoadFrom<float>(in), StoreTo<float>(out));
  // PTX: clock64
  // PTX: bar\.warp\.sync
  // PTX: st\.relaxed\.sys\.global\.b128
}

__global__ void traced(TraceBuffer buffer) {
  BlockTrace trace(buffer, gpu::Grid());
  trace.point(mark, 7);
  // PTX: mov\.u64 %\w+, %globaltimer; mov\.u64 %\w+, %clock64
  // PTX: st(\.global)?\.v4\.u32
  // PTX: mov\.u64 %\w+, %clock64
  // PTX: st(\.global)?\.v4\.u32
  // PTX: mov\.u64 %\w+, %globaltimer; mov\.u64 %\w+, %clock64
  // PTX: st(\.global)?\.v4\.u32
  // PTX: st(\.global)?\.u32
  // PTX-NOT: fence|membar|bar\.sync
}
