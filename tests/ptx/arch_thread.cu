// The instructions of arch/ that do not access memory: warps, barriers, clocks, launches.
#include "mscclpp/arch/async_copy.hpp"
#include "mscclpp/arch/backoff.hpp"
#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/launch.hpp"
#include "mscclpp/arch/load_matrix.hpp"
#include "mscclpp/arch/mma.hpp"
#include "mscclpp/arch/trap.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/basic/group.hpp"

using namespace mscclpp;

__global__ void warp(std::uint32_t* words, std::uint32_t mask) {
  const std::uint32_t value = words[threadIdx.x];
  arch::warpSync(mask);
  // PTX: bar\.warp\.sync
  words[32] = arch::warpShuffle(mask, value, 3, 32);
  // PTX: shfl\.sync\.idx\.b32
  words[33] = arch::warpBallot(mask, value == 1);
  // PTX: vote\.sync\.ballot\.b32
  words[34] = arch::warpAll(mask, value == 2);
  // PTX: vote\.sync\.all\.pred
  words[35] = arch::warpAny(mask, value == 3);
  // PTX: vote\.sync\.any\.pred
  words[36] = static_cast<std::uint32_t>(arch::countBits(value));
  // PTX: popc\.b32
}

// A whole warp's mask is a constant; a tile of 8 lanes has its own (255, moved) and its own segments (6175 = 24 << 8 |
// 31).
__global__ void tiles(std::uint32_t* words) {
  const std::uint32_t value = words[threadIdx.x];
  words[32] = gpu::WarpTile<32>().shuffle(value, 1);
  // PTX: mov\.u32 .*, 31;
  // PTX: mov\.u32 .*, -1;
  // PTX: shfl\.sync\.idx\.b32
  words[33] = gpu::WarpTile<8>().shuffle(value, 1);
  // PTX: mov\.u32 .*, 255;
  // PTX: mov\.u32 .*, 6175;
  // PTX: shfl\.sync\.idx\.b32
}

__global__ void barriers(int* words) {
  words[0] = 1;
  arch::blockSync();
  words[1] = 1;
  arch::namedBarrierSync(3, 64);
  words[2] = arch::namedBarrierSyncAny(4, 96, words[3] == 1);
  // PTX: st\.(global\.)?(b|u)32
  // PTX: bar(rier\.cta)?\.sync 0
  // PTX: st\.(global\.)?(b|u)32
  // PTX: barrier\.cta\.sync %r\d+, %r\d+
  // PTX: barrier\.cta\.red\.or\.pred any, %r\d+, %r\d+, vote
  // PTX: st\.(global\.)?(b|u)32
}

__global__ void clocks(std::uint64_t* words) {
  words[0] = arch::nanoseconds();
  // PTX: mov\.u64 .*%globaltimer
  words[1] = arch::cycles();
  // PTX: mov\.u64 .*%clock64
}

__global__ void dependentLaunch(int* words) {
  arch::launchDependents();
  arch::waitForPrerequisites();
  words[0] = 1;
  // PTX: griddepcontrol\.launch_dependents
  // PTX: griddepcontrol\.wait
  // PTX: st\.(global\.)?(b|u)32
}

// A GPU polls again at once.
__global__ void pauses(unsigned* words) {
  words[0] = 1;
  arch::backoff(words[1]);
  // PTX: st\.(global\.)?(b|u)32
  // PTX-NOT: nanosleep
}

__global__ void traps(const int* words) {
  if (words[0] == 1) arch::trap();
  // PTX: trap;
}

__global__ void tensorCore(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  arch::multiplyAdd<arch::ElementKind::BF16>(gpu::WarpTile<>(), c, a, b);
  // PTX: mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32
  arch::multiplyAdd<arch::ElementKind::F16>(gpu::WarpTile<>(), c, a, b);
  // PTX: mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32
  arch::multiplyAdd<arch::ElementKind::E4M3>(gpu::WarpTile<>(), c, a, b);
  // PTX: mma\.sync\.aligned\.m16n8k32\.row\.col\.f32\.e4m3\.e4m3\.f32
}

__global__ void tensorCoreOperands(const float* from, std::uint32_t (&words)[4], std::uint32_t bytes) {
  __shared__ alignas(16) float rows[32 * 4];
  arch::copyAsync(rows + threadIdx.x * 4, from + threadIdx.x * 4, bytes);
  // PTX: cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 16, %r
  arch::copyAsyncCommit();
  // PTX: cp\.async\.commit_group
  arch::copyAsyncWait<1>();
  // PTX: cp\.async\.wait_group 1
  arch::loadMatrices(gpu::WarpTile<>(), words, [&](int lane) { return rows + lane * 4; });
  // PTX: ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16
}
