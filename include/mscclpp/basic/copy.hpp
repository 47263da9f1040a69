// Copies by a group of threads: any size, any alignment, with the widest accesses that both pointers allow.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

/// Copies `count` words; each thread has Unroll loads in flight before its first store.
template <class Word, int Unroll>
MSCCLPP_INLINE void copyWords(std::byte* dst, const std::byte* src, std::size_t count, int rank, int size) {
  const std::size_t step = static_cast<std::size_t>(size);
  constexpr std::size_t bytes = sizeof(Word);
  std::size_t i = static_cast<std::size_t>(rank);
  for (; i + (Unroll - 1) * step < count; i += Unroll * step) {
    Word words[Unroll];
    MSCCLPP_UNROLL
    for (int u = 0; u < Unroll; ++u) words[u] = arch::loadPlain<Word>(src + (i + u * step) * bytes);
    MSCCLPP_UNROLL
    for (int u = 0; u < Unroll; ++u) arch::storePlain(dst + (i + u * step) * bytes, words[u]);
  }
  for (; i < count; i += step) arch::storePlain(dst + i * bytes, arch::loadPlain<Word>(src + i * bytes));
}

template <class Word>
MSCCLPP_INLINE void copyAs(std::byte* dst, const std::byte* src, std::size_t bytes, int rank, int size) {
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(dst) % sizeof(Word);
  std::size_t head = misalignment == 0 ? 0 : sizeof(Word) - misalignment;
  if (head > bytes) head = bytes;
  const std::size_t words = (bytes - head) / sizeof(Word);
  const std::size_t tail = head + words * sizeof(Word);
  for (std::size_t i = static_cast<std::size_t>(rank); i < head; i += static_cast<std::size_t>(size)) dst[i] = src[i];
  copyWords<Word, 4>(dst + head, src + head, words, rank, size);
  for (std::size_t i = tail + static_cast<std::size_t>(rank); i < bytes; i += static_cast<std::size_t>(size))
    dst[i] = src[i];
}

}  // namespace detail

/// Copies `bytes` bytes between regions that do not overlap. Called by every thread of group; does not sync: sync the
/// group before other threads read dst. Any alignment and any size, 0 included; fastest (16 bytes per access) if dst
/// and src are congruent modulo 16.
template <ThreadGroup Group>
MSCCLPP_INLINE void copy(const Group& group, void* dst, const void* src, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const auto difference = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if (difference % 16 == 0) {
    detail::copyAs<Word128>(to, from, bytes, group.rank(), group.size());
  } else if (difference % 8 == 0) {
    detail::copyAs<std::uint64_t>(to, from, bytes, group.rank(), group.size());
  } else if (difference % 4 == 0) {
    detail::copyAs<std::uint32_t>(to, from, bytes, group.rank(), group.size());
  } else {
    detail::copyAs<std::uint8_t>(to, from, bytes, group.rank(), group.size());
  }
}

/// MSCCL++-compatible overload, called by threads 0 to numThreads - 1. With CopyRemainder = false, only the bytes
/// between the first and the last multiple of Alignment (of dst) are copied, and both pointers must be congruent modulo
/// Alignment.
template <int Alignment = 16, bool CopyRemainder = true>
MSCCLPP_INLINE void copy(void* dst, const void* src, std::uint64_t bytes, std::uint32_t threadId,
                         std::uint32_t numThreads) {
  static_assert(Alignment == 4 || Alignment == 8 || Alignment == 16, "Alignment must be 4, 8 or 16 bytes");
  const ThreadRange threads(threadId, numThreads);
  if constexpr (CopyRemainder) {
    copy(threads, dst, src, bytes);
  } else {
    using Word = typename arch::WordOfSize<Alignment>::Type;
    const std::size_t head = (std::uintptr_t{0} - reinterpret_cast<std::uintptr_t>(dst)) % Alignment;
    const std::size_t words = head < bytes ? (bytes - head) / Alignment : 0;
    detail::copyWords<Word, 4>(static_cast<std::byte*>(dst) + head, static_cast<const std::byte*>(src) + head, words,
                               threads.rank(), threads.size());
  }
}

/// Reduces src into dst: dst[i] = op(dst[i], src[i]), rounded once, for `count` elements. Called by every thread of
/// group; does not sync. Both arrays are aligned to their elements; 16 bytes per access if both are aligned to that.
template <ThreadGroup Group, class T, class Op>
MSCCLPP_INLINE void copyReduce(const Group& group, T* dst, const T* src, std::size_t count, const Op& op) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto step = static_cast<std::size_t>(group.size());
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(dst) % sizeof(Word128);
  const std::size_t upToAligned = misalignment == 0 ? 0 : (sizeof(Word128) - misalignment) / sizeof(T);
  const std::size_t head = upToAligned < count ? upToAligned : count;
  const bool together = reinterpret_cast<std::uintptr_t>(src + head) % sizeof(Word128) == 0;
  const std::size_t packs = together ? (count - head) / packSize<T> : 0;
  const auto reduceOne = [&](std::size_t i) {
    dst[i] = narrow<T>(arch::canonicalNan(op.finish(op.combine(widen<T>(dst[i]), widen<T>(src[i])), 2)));
  };
  for (std::size_t i = rank; i < head; i += step) reduceOne(i);
  for (std::size_t p = rank; p < packs; p += step) {
    const std::size_t first = head + p * packSize<T>;
    PackReducer<T, Op> reducer(fromWord<T>(arch::loadWide(dst + first)), op);
    reducer.add(fromWord<T>(arch::loadWide(src + first)));
    arch::storeWide(dst + first, toWord<T>(reducer.finish(2)));
  }
  for (std::size_t i = head + packs * packSize<T> + rank; i < count; i += step) reduceOne(i);
}
/// The same with an operator without state.
template <StatelessOperator Op, ThreadGroup Group, class T>
MSCCLPP_INLINE void copyReduce(const Group& group, T* dst, const T* src, std::size_t count) {
  copyReduce(group, dst, src, count, Op{});
}

}  // namespace mscclpp
