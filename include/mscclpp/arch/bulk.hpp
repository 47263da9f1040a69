// Bulk copies between shared and global memory, done by the copy engine of a multiprocessor for one thread (PTX cp.async.bulk; sm_90 and newer).
//
// Every address is aligned to 16 bytes, every size a multiple of 16. Global memory may be a peer's, mapped here. The copies run in a proxy of their own:
// what ordinary accesses wrote is seen by them only after a proxy fence (below); what they wrote is seen by ordinary accesses once their end is observed.
// Host twins load at once, and store as late as they may.
#pragma once

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/mbarrier.hpp"
#include "mscclpp/arch/pending_stores.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Starts a copy from global to shared memory. Its end lands `bytes` bytes on the barrier.
MSCCLPP_INLINE void bulkLoad(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   ptx::sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(ptx::sharedAddress(barrier))
               : "memory");
#else
  copyBytes(shared, global, bytes);
  twin::updateBarrier(barrier, 0, -static_cast<std::int64_t>(bytes));
#endif
}

/// Starts a copy from shared to global memory, as part of the calling thread's open group.
MSCCLPP_INLINE void bulkStore(void* global, const void* shared, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(ptx::sharedAddress(shared)), "r"(bytes)
               : "memory");
#elif !defined(__CUDACC_RTC__)
  twin::PendingStores::ofThisThread().add(
      global, shared, bytes, [](void* to, const void* from, std::uint32_t size) { copyBytes(to, from, size); });
#endif
}

/// Whether the hardware reduces elements of this kind on their way to memory.
constexpr MSCCLPP_HOST_DEVICE bool bulkReduces(Arithmetic op, ElementKind kind) {
  if (kind == ElementKind::E4M3 || kind == ElementKind::E5M2) return false;
  return op == Arithmetic::Add || (kind != ElementKind::F32 && kind != ElementKind::F64);
}

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row an operation and element kind. 64-bit sums are the same bits with and without a sign, and the hardware has the latter.
template <Arithmetic op, ElementKind kind>
struct BulkReduce;
#define MSCCLPP_ARCH_BULK_REDUCE(op, kind, text)                                                                \
  template <>                                                                                                   \
  struct BulkReduce<Arithmetic::op, ElementKind::kind> {                                                        \
    MSCCLPP_DEVICE __forceinline__ static void store(void* global, const void* shared, std::uint32_t bytes) {   \
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." text " [%0], [%1], %2;" ::"l"(global), \
                   "r"(sharedAddress(shared)), "r"(bytes)                                                       \
                   : "memory");                                                                                 \
    }                                                                                                           \
  };
MSCCLPP_ARCH_BULK_REDUCE(Add, F16, "add.noftz.f16")
MSCCLPP_ARCH_BULK_REDUCE(Add, BF16, "add.noftz.bf16")
MSCCLPP_ARCH_BULK_REDUCE(Add, F32, "add.f32")
MSCCLPP_ARCH_BULK_REDUCE(Add, F64, "add.f64")
MSCCLPP_ARCH_BULK_REDUCE(Add, S32, "add.s32")
MSCCLPP_ARCH_BULK_REDUCE(Add, U32, "add.u32")
MSCCLPP_ARCH_BULK_REDUCE(Add, S64, "add.u64")
MSCCLPP_ARCH_BULK_REDUCE(Add, U64, "add.u64")
MSCCLPP_ARCH_BULK_REDUCE(Min, F16, "min.f16")
MSCCLPP_ARCH_BULK_REDUCE(Min, BF16, "min.bf16")
MSCCLPP_ARCH_BULK_REDUCE(Min, S32, "min.s32")
MSCCLPP_ARCH_BULK_REDUCE(Min, U32, "min.u32")
MSCCLPP_ARCH_BULK_REDUCE(Min, S64, "min.s64")
MSCCLPP_ARCH_BULK_REDUCE(Min, U64, "min.u64")
MSCCLPP_ARCH_BULK_REDUCE(Max, F16, "max.f16")
MSCCLPP_ARCH_BULK_REDUCE(Max, BF16, "max.bf16")
MSCCLPP_ARCH_BULK_REDUCE(Max, S32, "max.s32")
MSCCLPP_ARCH_BULK_REDUCE(Max, U32, "max.u32")
MSCCLPP_ARCH_BULK_REDUCE(Max, S64, "max.s64")
MSCCLPP_ARCH_BULK_REDUCE(Max, U64, "max.u64")
#undef MSCCLPP_ARCH_BULK_REDUCE

}  // namespace ptx
#endif

/// Starts a reduction of shared into global memory: each element there becomes op of itself and ours, atomically and in no order with others; part of the
/// calling thread's open group. Twin: a type with a static reduce(global, shared, bytes) that does the same on a CPU.
template <Arithmetic op, ElementKind kind, class Twin>
MSCCLPP_INLINE void bulkReduceStore(void* global, const void* shared, std::uint32_t bytes) {
  static_assert(bulkReduces(op, kind),
                "no bulk reduction of this kind: sums of all but fp8, minimum and maximum of integers, fp16 and bf16");
#if defined(__CUDA_ARCH__)
  ptx::BulkReduce<op, kind>::store(global, shared, bytes);
#elif !defined(__CUDACC_RTC__)
  twin::PendingStores::ofThisThread().add(global, shared, bytes, Twin::reduce);
#endif
}

/// Closes the calling thread's open group of stores.
MSCCLPP_INLINE void bulkCommit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#elif !defined(__CUDACC_RTC__)
  twin::PendingStores::ofThisThread().commit();
#endif
}

/// Waits until all but the last `Left` groups of the calling thread have ended and their writes are visible to it. An instruction: no policy can end it, nor
/// need it, since it waits for nobody's action.
template <int Left>
MSCCLPP_INLINE void bulkWait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Left) : "memory");
#elif !defined(__CUDACC_RTC__)
  twin::PendingStores::ofThisThread().performUntil(Left);
#endif
}

/// Waits until all but the last `Left` groups have read their shared memory, which may then be written again.
template <int Left>
MSCCLPP_INLINE void bulkWaitSource() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory");
#elif !defined(__CUDACC_RTC__)
  twin::PendingStores::ofThisThread().performUntil(Left);
#endif
}

/// Orders ordinary accesses to the block's shared memory, by the calling thread or known to it through a sync, before its later bulk copies.
MSCCLPP_INLINE void bulkFenceShared() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The same for shared and global memory, what it has acquired included.
MSCCLPP_INLINE void bulkFenceAll() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
