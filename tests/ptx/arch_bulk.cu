// Bulk copies: barriers in shared memory, loads, stores and reductions in groups, proxy fences.
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/group.hpp"

using namespace mscclpp;

__global__ void barrier(std::uint32_t* to) {
  auto& object = *reinterpret_cast<BulkBarrier*>(gpu::Grid().sharedMemory());
  object.init(3);
  // PTX: mbarrier\.init\.shared::cta\.b64 \[%r\d+\], %r\d+;
  // PTX: fence\.mbarrier_init\.release\.cluster;
  object.expect(16);
  // PTX: mbarrier\.expect_tx\.relaxed\.cta\.shared::cta\.b64
  object.arrive();
  // PTX: mbarrier\.arrive\.release\.cta\.shared::cta\.b64 _,
  object.arriveAndExpect(32);
  // PTX: mbarrier\.arrive\.expect_tx\.release\.cta\.shared::cta\.b64 _,
  *to = object.poll(1);
  // PTX: mbarrier\.try_wait\.parity\.acquire\.cta\.shared::cta\.b64
  object.invalidate();
  // PTX: mbarrier\.inval\.shared::cta\.b64
}

__global__ void copies(std::byte* global) {
  auto* shared = gpu::Grid().sharedMemory();
  auto& object = *reinterpret_cast<BulkBarrier*>(shared + 1024);
  bulkLoad(shared, global, 1024, object);
  // PTX: cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[%r\d+], \[%rd\d+], %r\d+, \[%r\d+];
  bulkFence();
  // PTX: fence\.proxy\.async\.shared::cta;
  arch::bulkFenceAll();
  // PTX: fence\.proxy\.async;
  arch::bulkFenceGlobal();
  // PTX: fence\.proxy\.async\.global;
  bulkStore(global, shared, 1024);
  // PTX: cp\.async\.bulk\.global\.shared::cta\.bulk_group \[%rd\d+\], \[%r\d+\], %r\d+;
  bulkStoreCommit();
  // PTX: cp\.async\.bulk\.commit_group;
  bulkStoreWaitSource<3>();
  // PTX: cp\.async\.bulk\.wait_group\.read 3;
  bulkStoreWait();
  // PTX: cp\.async\.bulk\.wait_group 0;
}

template <BulkRedOp op, class T>
__device__ void reduceOnto(T* global) {
  bulkReduceStore<T, op>(global, reinterpret_cast<const T*>(gpu::Grid().sharedMemory()), 64);
}

__global__ void sums(void* global) {
  reduceOnto<BulkRedOp::Add>(static_cast<f16*>(global));
  // PTX: cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.noftz\.f16 \[%rd\d+\], \[%r\d+\], %r\d+;
  reduceOnto<BulkRedOp::Add>(static_cast<bf16*>(global));
  // PTX: bulk_group\.add\.noftz\.bf16
  reduceOnto<BulkRedOp::Add>(static_cast<float*>(global));
  // PTX: bulk_group\.add\.f32
  reduceOnto<BulkRedOp::Add>(static_cast<double*>(global));
  // PTX: bulk_group\.add\.f64
  reduceOnto<BulkRedOp::Add>(static_cast<std::int32_t*>(global));
  // PTX: bulk_group\.add\.s32
  reduceOnto<BulkRedOp::Add>(static_cast<std::uint32_t*>(global));
  // PTX: bulk_group\.add\.u32
  reduceOnto<BulkRedOp::Add>(static_cast<std::int64_t*>(global));
  // PTX: bulk_group\.add\.u64
  reduceOnto<BulkRedOp::Add>(static_cast<std::uint64_t*>(global));
  // PTX: bulk_group\.add\.u64
}

template <class T>
__device__ void minMaxOf(void* global) {
  reduceOnto<BulkRedOp::Min>(static_cast<T*>(global));
  reduceOnto<BulkRedOp::Max>(static_cast<T*>(global));
}

__global__ void minMax(void* global) {
  minMaxOf<f16>(global);
  // PTX: bulk_group\.min\.f16
  // PTX: bulk_group\.max\.f16
  minMaxOf<bf16>(global);
  // PTX: bulk_group\.min\.bf16
  // PTX: bulk_group\.max\.bf16
  minMaxOf<std::int32_t>(global);
  // PTX: bulk_group\.min\.s32
  // PTX: bulk_group\.max\.s32
  minMaxOf<std::uint32_t>(global);
  // PTX: bulk_group\.min\.u32
  // PTX: bulk_group\.max\.u32
  minMaxOf<std::int64_t>(global);
  // PTX: bulk_group\.min\.s64
  // PTX: bulk_group\.max\.s64
  minMaxOf<std::uint64_t>(global);
  // PTX: bulk_group\.min\.u64
  // PTX: bulk_group\.max\.u64
}
