// The cost of tracing: no instruction without a trace; a store and a read of the clock per event.
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

using Reduce = AllReduce<float, Sum, AllReduceConfig{Protocol::LL16, Pattern::TwoShot, 4}>;
using Ll128Reduce = AllReduce<float, Sum, AllReduceConfig{Protocol::LL128, Pattern::TwoShot, 4}>;

}  // namespace

__global__ void handWritten(int* data) {
  data[gpu::Block().rank()] = 1;
  data[gpu::Block().rank() + 64] = 2;
  // PTX: st\.global\.u32
  // PTX: st\.global\.u32
}
__global__ void untraced(int* data) {
  work(gpu::Grid(), data);
  // PTX-SAME: handWritten
}
__global__ void withNoTrace(int* data) {
  NoTrace none;
  work(TracedGrid(gpu::Grid(), none), data);
  // PTX-SAME: handWritten
}

__global__ void reduce(const __grid_constant__ Reduce::Args args, const float* in, float* out) {
  Reduce::run(gpu::Grid(), args, ArraySource<float>(in), ArraySink<float>(out));
  // PTX: ld\.relaxed\.sys
  // PTX-NOT: clock64
}
__global__ void reduceWithNoTrace(const __grid_constant__ Reduce::Args args, const float* in, float* out) {
  NoTrace none;
  Reduce::run(TracedGrid(gpu::Grid(), none), args, ArraySource<float>(in), ArraySink<float>(out));
  // PTX-SAME: reduce
}

// All lanes store a line together: they reconverge after one of them has recorded a wait.
__global__ void tracedLines(const __grid_constant__ Traced<Ll128Reduce>::Args args, const float* in, float* out) {
  Traced<Ll128Reduce>::run(gpu::Grid(), args, ArraySource<float>(in), ArraySink<float>(out));
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
