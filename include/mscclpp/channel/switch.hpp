// Switch channel: memory of all ranks of a group at one multicast address, from which the switch reduces and to which
// it broadcasts, and barriers of the group.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/multicast.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/switch_semaphore.hpp"

namespace mscclpp {

/// The number of barriers of a switch channel, for instance one per block of a kernel.
inline constexpr int switchChannelSemaphores = 64;

namespace detail {

template <class T>
struct SizedAs {
  T value;
};
template <>
struct SizedAs<void> {
  std::uint64_t none;
};

/// The element type of CUDA's pairs; otherwise T.
template <class T>
struct ScalarOf {
  using Type = T;
};
template <>
struct ScalarOf<__half2> {
  using Type = f16;
};
template <>
struct ScalarOf<__nv_bfloat162> {
  using Type = bf16;
};

}  // namespace detail

/// Data and synchronisation. Each call is made by one thread. An index is in units of the vector type V of the call, a
/// Vector<T, N>: the buffer is an array of V. Accesses are relaxed; the barriers order them.
///
/// The pattern of an all-reduce, on every rank: all threads write local(); group.sync(); one thread calls signal() and
/// wait(); group.sync(); all threads call reduce(). Another barrier must precede the next write to the same memory,
/// since peers may still be reading it.
struct SwitchChannelHandle {
  /// Bytes between the counters of two barriers, which are in different cache lines.
  static constexpr std::size_t semaphoreStride = 128;

  void* devicePtr;                 ///< this rank's memory, at its ordinary address
  MulticastAddress multicast;      ///< the memory of all ranks
  std::size_t bufferSize;          ///< bytes per rank
  SwitchSemaphoreHandle barrier_;  ///< barrier 0
  void* mcPtr;                     ///< on a GPU `multicast` as a pointer, otherwise null

  /// Barrier `index`, below switchChannelSemaphores. Callers that use the same index on every rank synchronise with
  /// each other only.
  MSCCLPP_INLINE SwitchSemaphoreHandle semaphore(int index) const {
    const std::size_t offset = static_cast<std::size_t>(index) * semaphoreStride;
    SwitchSemaphoreHandle result = barrier_;
    result.mcBarrierFlag = barrier_.mcBarrierFlag + offset;
    result.localBarrierFlag = barrier_.localBarrierFlag + offset / sizeof(std::uint64_t);
    result.barrierGen = barrier_.barrierGen + offset / sizeof(std::uint64_t);
    return result;
  }

  // Barrier 0; SwitchSemaphoreHandle (sync/switch_semaphore.hpp) states the ordering and the errors.
  MSCCLPP_INLINE void signal() const { barrier_.signal(); }
  MSCCLPP_INLINE void relaxedSignal() const { barrier_.relaxedSignal(); }
  MSCCLPP_INLINE bool poll() const { return barrier_.poll(); }
  MSCCLPP_INLINE bool wait() const { return barrier_.wait(); }
  MSCCLPP_INLINE bool relaxedWait() const { return barrier_.relaxedWait(); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) const {
    return barrier_.wait(policy);
  }
  /// MSCCL++-compatible overloads: a negative count means no timeout, any other the handle's.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) const { return barrier_.wait(maxSpinCount); }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) const { return barrier_.relaxedWait(maxSpinCount); }

  /// Element `index`, in units of T, of all ranks' memory; below, of this rank's.
  template <class T>
  MSCCLPP_INLINE MulticastPointer<T> at(std::size_t index) const {
    return {multicast + index * sizeof(T)};
  }
  template <class T>
  MSCCLPP_INLINE T* local() const {
    return static_cast<T*>(devicePtr);
  }

  // V is Vector<T, N>, or a user-defined type of the same layout with a member type Element and a constant `size`.

  /// Returns vector `index`, reduced over all ranks. arch/multimem_table.hpp lists the possible V, op and
  /// accumulations.
  template <class V, HardwareReduceOp op = HardwareReduceOp::Add,
            Accumulation in = defaultAccumulation<typename V::Element, op>>
  MSCCLPP_INLINE V reduce(std::size_t index) const {
    return arch::bitCast<V>(at<typename V::Element>(index * V::size).template loadReduce<V::size, op, in>());
  }
  /// Stores value to vector `index` of every rank.
  template <class V>
  MSCCLPP_INLINE void broadcast(std::size_t index, const V& value) const {
    at<typename V::Element>(index * V::size).store(elements(value));
  }
  /// Reduces value into vector `index` of every rank.
  template <HardwareReduceOp op = HardwareReduceOp::Add, class V>
  MSCCLPP_INLINE void reduceInto(std::size_t index, const V& value) const {
    at<typename V::Element>(index * V::size).template storeReduce<op>(elements(value));
  }

  // MSCCL++-compatible functions on pointers into multicast memory (mcPtr). GPUs only.

  /// Returns the sum of *ptr over all ranks. Accumulate: void, or __half for sums of fp8.
  template <class V, class Accumulate = void>
  static MSCCLPP_INLINE V multimemLoadReduce(V* ptr) {
    using Element = typename V::Element;
    constexpr Accumulation in = sizeof(detail::SizedAs<Accumulate>) == 2
                                    ? Accumulation::F16
                                    : defaultAccumulation<Element, HardwareReduceOp::Add>;
    return arch::bitCast<V>(pointer<Element>(ptr).template loadReduce<V::size, HardwareReduceOp::Add, in>());
  }
  template <class V, class T>
  static MSCCLPP_INLINE void multimemStore(const V& value, T* ptr) {
    arch::multimemStore(pointer<T>(ptr).address, value);
  }
  /// Adds value to *ptr on every rank. T: float, __half, __half2, __nv_bfloat16 or __nv_bfloat162; value holds
  /// sizeof(V) bytes of T's scalar type.
  template <class V, class T>
  static MSCCLPP_INLINE void multimemStoreReduce(const V& value, T* ptr) {
    using Scalar = typename detail::ScalarOf<T>::Type;
    using Elements = Vector<Scalar, static_cast<int>(sizeof(V) / sizeof(Scalar))>;
    pointer<Scalar>(ptr).template storeReduce<HardwareReduceOp::Add>(arch::bitCast<Elements>(value));
  }

 private:
  template <class V>
  static MSCCLPP_INLINE auto elements(const V& value) {
    return arch::bitCast<Vector<typename V::Element, V::size>>(value);
  }
  template <class T>
  static MSCCLPP_INLINE MulticastPointer<T> pointer(void* ptr) {
    return {MulticastAddress{static_cast<std::byte*>(ptr), 0}};
  }
};

static_assert(MulticastChannel<SwitchChannelHandle, Vector<float, 4>>);

}  // namespace mscclpp
