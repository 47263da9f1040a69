// Asynchronous bulk copies between shared and global memory (PTX cp.async.bulk; sm_90 and newer).
//
// Each call is made by one thread; the multiprocessor's copy engine moves the data. Addresses are aligned to 16 bytes
// and sizes, in bytes, are multiples of 16. Global memory may be a peer's, mapped here. The copies belong to the PTX
// async proxy: they see ordinary writes only after a proxy fence (below), and ordinary accesses see what they wrote
// once their completion has been observed. The CPU implementation loads at once and stores as late as it may.
#pragma once

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/mbarrier.hpp"
#include "mscclpp/arch/pending_stores.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Whether the code is compiled for a processor with bulk copies, without which it must not call these functions.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool hasBulkCopies = false;
#else
inline constexpr bool hasBulkCopies = true;
#endif

/// Starts a copy from global to shared memory, which completes `bytes` bytes of the barrier's current phase.
MSCCLPP_INLINE void bulkLoad(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   ptx::sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(ptx::sharedAddress(barrier))
               : "memory");
#else
  copyBytes(shared, global, bytes);
  host::updateBarrier(barrier, 0, -static_cast<std::int64_t>(bytes));
#endif
}

/// Starts a copy from shared to global memory, in the calling thread's open group of stores.
MSCCLPP_INLINE void bulkStore(void* global, const void* shared, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(ptx::sharedAddress(shared)), "r"(bytes)
               : "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::ofThisThread().add(
      global, shared, bytes, [](void* to, const void* from, std::uint32_t size) { copyBytes(to, from, size); });
#endif
}

/// Whether the copy engine can reduce elements of this kind into global memory.
constexpr MSCCLPP_HOST_DEVICE bool bulkReduces(HardwareReduceOp op, ElementKind kind) {
  if (kind == ElementKind::E4M3 || kind == ElementKind::E5M2) return false;
  return op == HardwareReduceOp::Add || (kind != ElementKind::F32 && kind != ElementKind::F64);
}

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row per operation and element kind. The hardware has only unsigned 64-bit sums, which give the same bits.
template <HardwareReduceOp op, ElementKind kind>
struct BulkReduce;
#define MSCCLPP_ARCH_BULK_REDUCE(op, kind, text)                                                                \
  template <>                                                                                                   \
  struct BulkReduce<HardwareReduceOp::op, ElementKind::kind> {                                                  \
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

/// Starts a reduction of shared into global memory, in the calling thread's open group of stores. Each element of
/// global memory becomes op(itself, the one in shared memory), atomically and relaxed. HostReducer: a type with a
/// static reduce(global, shared, bytes) that does the same on a CPU.
template <HardwareReduceOp op, ElementKind kind, class HostReducer>
MSCCLPP_INLINE void bulkReduceStore(void* global, const void* shared, std::uint32_t bytes) {
  static_assert(bulkReduces(op, kind),
                "no such bulk reduction: Add takes every type but fp8; Min and Max take integers, fp16 and bf16");
#if defined(__CUDA_ARCH__)
  ptx::BulkReduce<op, kind>::store(global, shared, bytes);
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::ofThisThread().add(global, shared, bytes, HostReducer::reduce);
#endif
}

/// Closes the calling thread's open group of stores (commit_group).
MSCCLPP_INLINE void bulkCommit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::ofThisThread().commit();
#endif
}

/// Waits until all but the last `Left` groups of the calling thread have completed and their writes are visible to it.
/// It waits for hardware only, not for another rank, so it takes no wait policy.
template <int Left>
MSCCLPP_INLINE void bulkWait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Left) : "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::ofThisThread().performUntil(Left);
#endif
}

/// Waits until all but the last `Left` groups of the calling thread have read their shared memory, which may then be
/// overwritten.
template <int Left>
MSCCLPP_INLINE void bulkWaitSource() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::ofThisThread().performUntil(Left);
#endif
}

/// Proxy fence: orders ordinary accesses to the block's shared memory, by the calling thread or before a sync with it,
/// before its later bulk copies.
MSCCLPP_INLINE void bulkFenceShared() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The same for global memory, including what the thread has acquired.
MSCCLPP_INLINE void bulkFenceGlobal() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/// The same for both. Beside loads by TMA it takes longer than bulkFenceGlobal().
MSCCLPP_INLINE void bulkFenceAll() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
