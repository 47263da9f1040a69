// Grids: the hardware barriers that a span of warps uses, and what the numbering of blocks costs.
#include "mscclpp/basic/group.hpp"

using namespace mscclpp;

// Warps 4 to 6: 96 threads, 64 of them workers. Barrier ids 10 to 15.
__global__ void spanOfWarps() {
  const auto span = gpu::Grid().warps(4, 3, {.first = 10});
  span.block().sync();
  // PTX: mov\.\w32 %r\d+, 15;
  // PTX: mov\.\w32 %r\d+, 96;
  // PTX: barrier\.cta\.sync %r\d+, %r\d+;
  span.workers().sync();
  // PTX: mov\.\w32 %r\d+, 10;
  // PTX: mov\.\w32 %r\d+, 64;
  // PTX: barrier\.cta\.sync %r\d+, %r\d+;
  span.namedBarrierArrive(0);
  // PTX: mov\.\w32 %r\d+, 11;
  // PTX: barrier\.cta\.arrive %r\d+, %r\d+;
  // PTX-NOT: %ntid
  span.namedBarrierWait(3);
  // PTX: mov\.\w32 %r\d+, 14;
  // PTX: barrier\.cta\.sync %r\d+, %r\d+;
}

__global__ void wholeBlocks() {
  const gpu::Grid grid;
  grid.block().sync();
  // PTX: bar(rier)?(\.cta)?\.sync\s+0;
  grid.workers().sync();
  // PTX: mov\.\w32 %r\d+, 1;
  // PTX: barrier\.cta\.sync %r\d+, %r\d+;
  grid.namedBarrierArrive(0);
  // PTX: mov\.\w32 %r\d+, 2;
  // PTX: barrier\.cta\.arrive %r\d+, %r\d+;
  grid.namedBarrierWait(3);
  // PTX: mov\.\w32 %r\d+, 5;
  // PTX: barrier\.cta\.sync %r\d+, %r\d+;
}

__global__ void anyDimensions(int* to) {
  *to = gpu::Grid().blockIndex();
  // PTX: %ctaid\.z
}

__global__ void oneDimension(int* to) {
  *to = gpu::LinearGrid().blockIndex() + gpu::LinearGrid().blockCount();
  // PTX: %ctaid\.x
  // PTX-NOT: %n?ctaid\.[yz]
}
