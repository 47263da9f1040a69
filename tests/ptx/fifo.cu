// The cost of a push: a ticket, a load of the cached tail, and a 16-byte store per word, with a release only if
// requested.
#include "mscclpp/basic/group.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/sync/fifo.hpp"

using namespace mscclpp;

__global__ void pushNothing(FifoHandle fifo, std::uint64_t fst, std::uint64_t snd) {
  fifo.push<ReleaseScope::None>(ProxyTrigger{fst, snd});
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: ld\.relaxed\.gpu\.global\.u64
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.release|st\.relaxed\.sys\.global\.u|ld\.acquire|ld\.relaxed\.sys
}

__global__ void pushDevice(FifoHandle fifo, std::uint64_t fst, std::uint64_t snd) {
  fifo.push<ReleaseScope::Device>(ProxyTrigger{fst, snd});
  // PTX: atom\.release\.gpu\.global\.add\.u64
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.release
}

__global__ void pushSystem(FifoHandle fifo, std::uint64_t fst, std::uint64_t snd) {
  fifo.push(ProxyTrigger{fst, snd});
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: st\.release\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.relaxed\.sys
}

__global__ void pushWarp(FifoHandle fifo, std::uint64_t fst) {
  fifo.push(gpu::WarpTile<>(), ProxyTrigger{fst, threadIdx.x});
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: shfl\.sync\.idx
  // PTX: shfl\.sync\.idx
  // PTX: st\.release\.sys\.global\.b128
  // PTX-NOT: fence|membar
}

__global__ void pushWarpDevice(FifoHandle fifo, std::uint64_t fst) {
  fifo.push<ReleaseScope::Device>(gpu::WarpTile<>(), ProxyTrigger{fst, threadIdx.x});
  // PTX: bar\.warp\.sync
  // PTX: atom\.release\.gpu\.global\.add\.u64
  // PTX: st\.relaxed\.sys\.global\.b128
}

__global__ void pushWide(WideFifoHandle fifo, PortRequest request) {
  fifo.push<ReleaseScope::None>(WideTrigger::make(request));
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.release
}

__global__ void pushWideSystem(WideFifoHandle fifo, PortRequest request) {
  fifo.push(WideTrigger::make(request));
  // PTX: st\.release\.sys\.global\.b128
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar
}

__global__ void putByValue(PortChannelHandle channel) {
  channel.putWithSignal(0, 8);  // the word is read here, if the transport makes use of it; one push in either case
  // PTX: ld\.global\.[a-z.]*64
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: st\.release\.sys\.global\.b128
  // PTX-NOT: fence|membar
}

__global__ void loadFlagged(const Word128* slot, Word128* to) {
  *to = arch::loadFlagged(slot);
  // PTX: ld\.relaxed\.sys\.global\.b128
  // PTX: fence\.acq_rel\.sys
}
