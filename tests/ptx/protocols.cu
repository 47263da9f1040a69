// The cost of the protocols: one access per packet, no fence, and one instruction per signal.
#include "mscclpp/basic/group.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/packet/ll8.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "mscclpp/sync/semaphore.hpp"

using namespace mscclpp;

__global__ void ll16Write(LL16Packet* packet, std::uint32_t flag) {
  packet->write({1, 2}, flag);
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.relaxed\.sys\.global\.u|st\.global
}

__global__ void ll16Read(const LL16Packet* packet, std::uint32_t flag, std::uint32_t* to) {
  LL16Packet::Payload payload;
  if (packet->tryRead(flag, payload)) *to = payload.x + payload.y;
  // PTX: ld\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|ld\.relaxed\.sys\.global\.u|ld\.global
}

__global__ void ll8Write(LL8Packet* packet, std::uint32_t flag) {
  packet->write(1, flag);
  // PTX: st\.relaxed\.sys\.global\.u64
  // PTX-NOT: fence|membar
}

__global__ void ll128WholeWrite(std::byte* slots, std::uint64_t epoch) {
  using P = LL128<LineStore::Atomic>;
  const gpu::WarpTile<> warp;
  P::write(warp, slots, 0, P::encode(warp, Word128{1, threadIdx.x}), epoch);
  // PTX: shfl\.sync\.idx
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar|st\.release
}

__global__ void ll128OrderedWrite(std::byte* slots, std::uint64_t epoch) {
  LL128<LineStore::Ordered>::write(gpu::WarpTile<>(), slots, 0, Word128{1, threadIdx.x}, epoch);
  // PTX: st\.relaxed\.sys\.global\.u64
  // PTX: bar\.warp\.sync
  // PTX: st\.release\.sys\.global\.u64
  // PTX-NOT: b128
}

__global__ void ll128OrderedFetch(std::byte* slots, std::uint64_t epoch, Word128* to) {
  using P = LL128<LineStore::Ordered>;
  const gpu::WarpTile<> warp;
  auto fetched = P::fetch(warp, slots, 0, epoch);
  if (P::arrived(warp, slots, 0, fetched, epoch)) to[threadIdx.x] = P::received(warp, fetched);
  // PTX: ld\.acquire\.sys\.global\.u64
  // PTX: vote\.sync\.all
  // PTX: bar\.warp\.sync
  // PTX: ld\.relaxed\.sys\.global\.u64
}

__global__ void sentinelWrite(std::byte* slots, const Word128* from, std::uint64_t epoch) {
  Sentinel::write(gpu::WarpTile<>(), slots, 0, from[threadIdx.x], epoch);
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: fence|membar
}

__global__ void signal(SemaphoreHandle semaphore) {
  semaphore.signal();
  // PTX: red\.release\.sys\.global\.add\.u64
  // PTX-NOT: fence|membar|atom
}

__global__ void relaxedSignal(SemaphoreHandle semaphore) {
  semaphore.relaxedSignal();
  // PTX: red\.relaxed\.sys\.global\.add\.u64
  // PTX-NOT: release|fence
}

__global__ void poll(SemaphoreHandle semaphore, bool* to) {
  *to = semaphore.poll();
  // PTX: ld\.acquire\.sys\.global\.u64
}
