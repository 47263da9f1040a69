// Switch channel: memory of every rank of a group behind one multicast address, which the switch reduces from and broadcasts to; and barriers beside it.
#pragma once

#include "mscclpp/basic/multicast.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/switch_semaphore.hpp"

namespace mscclpp {

/// How many barriers a switch channel has: one for each block of a kernel, say.
inline constexpr int switchChannelSemaphores = 64;

namespace detail {

template <class T>
struct WidthOf {
  T value;
};
template <>
struct WidthOf<void> {
  std::uint64_t none;
};

/// What CUDA's pairs are pairs of.
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

/// Data and synchronisation. Indices count in the vector type of the call: element `index` of the buffer seen as an array of V, a Vector<T, N>.
///
/// The pattern of an all-reduce: all write their own memory (local()), group.sync(), one thread signal() and wait(), group.sync(), and all reduce(). What
/// follows in the same memory needs a barrier too, since peers may still be reading.
struct SwitchChannelHandle {
  /// Bytes between the words of two barriers: a line each, so that blocks do not crowd one.
  static constexpr std::size_t semaphoreStride = 128;

  void* devicePtr;                 ///< this rank's memory, at its own address
  MulticastAddress multicast;      ///< the same memory of all ranks
  std::size_t bufferSize;          ///< bytes of each
  SwitchSemaphoreHandle barrier_;  ///< the first barrier
  void* mcPtr;                     ///< on a GPU what `multicast` stands for, as a pointer; else null

  /// Barrier number `index`, below switchChannelSemaphores: the same number on every rank makes a group of its own.
  MSCCLPP_INLINE SwitchSemaphoreHandle semaphore(int index) const {
    const std::size_t offset = static_cast<std::size_t>(index) * semaphoreStride;
    SwitchSemaphoreHandle result = barrier_;
    result.mcBarrierFlag = barrier_.mcBarrierFlag + offset;
    result.localBarrierFlag = barrier_.localBarrierFlag + offset / sizeof(std::uint64_t);
    result.barrierGen = barrier_.barrierGen + offset / sizeof(std::uint64_t);
    return result;
  }

  // The first barrier; by one thread.
  MSCCLPP_INLINE void signal() { barrier_.signal(); }
  MSCCLPP_INLINE void relaxedSignal() { barrier_.relaxedSignal(); }
  MSCCLPP_INLINE bool poll() { return barrier_.poll(); }
  MSCCLPP_INLINE bool wait() { return barrier_.wait(); }
  MSCCLPP_INLINE bool relaxedWait() { return barrier_.relaxedWait(); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) {
    return barrier_.wait(policy);
  }
  /// MSCCL++'s forms: a count below 0 means until aborted, any other the handle's own limit.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) { return barrier_.wait(maxSpinCount); }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) { return barrier_.relaxedWait(maxSpinCount); }

  /// Element `index`, in T, of everyone's memory.
  template <class T>
  MSCCLPP_INLINE MulticastPointer<T> at(std::size_t index) const {
    return {multicast + index * sizeof(T)};
  }
  template <class T>
  MSCCLPP_INLINE T* local() const {
    return static_cast<T*>(devicePtr);
  }

  // V has a type Element, a constant `size`, and their bytes: Vector<T, N>, or a vector type of one's own.

  /// Vector `index`, reduced over all ranks. Which V, op and accumulation there are: arch/multimem_table.hpp.
  template <class V, Arithmetic op = Arithmetic::Add, Accumulation in = defaultAccumulation<typename V::Element, op>>
  MSCCLPP_INLINE V reduce(std::size_t index) const {
    return arch::bitCast<V>(at<typename V::Element>(index * V::size).template loadReduce<V::size, op, in>());
  }
  /// Stores value as vector `index` of every rank.
  template <class V>
  MSCCLPP_INLINE void broadcast(std::size_t index, const V& value) const {
    at<typename V::Element>(index * V::size).store(elements(value));
  }
  /// Reduces value into vector `index` of every rank.
  template <Arithmetic op = Arithmetic::Add, class V>
  MSCCLPP_INLINE void reduceInto(std::size_t index, const V& value) const {
    at<typename V::Element>(index * V::size).template storeReduce<op>(elements(value));
  }

  // MSCCL++'s forms, on pointers into multicast memory (mcPtr). GPUs only.
  /// The sum of everyone's *ptr; Accumulate: void, or __half for sums of fp8.
  template <class V, class Accumulate = void>
  static MSCCLPP_INLINE V multimemLoadReduce(V* ptr) {
    using Element = typename V::Element;
    constexpr Accumulation in =
        sizeof(detail::WidthOf<Accumulate>) == 2 ? Accumulation::F16 : defaultAccumulation<Element, Arithmetic::Add>;
    return arch::bitCast<V>(pointer<Element>(ptr).template loadReduce<V::size, Arithmetic::Add, in>());
  }
  template <class V, class T>
  static MSCCLPP_INLINE void multimemStore(const V& value, T* ptr) {
    arch::multimemStore(pointer<T>(ptr).address, value);
  }
  /// T is float, or __half, __half2 and their likes; the value is as many scalars as its bytes hold.
  template <class V, class T>
  static MSCCLPP_INLINE void multimemStoreReduce(const V& value, T* ptr) {
    using Scalar = typename detail::ScalarOf<T>::Type;
    using Elements = Vector<Scalar, static_cast<int>(sizeof(V) / sizeof(Scalar))>;
    pointer<Scalar>(ptr).template storeReduce<Arithmetic::Add>(arch::bitCast<Elements>(value));
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

}  // namespace mscclpp
