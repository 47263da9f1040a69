// Typed access to multicast memory: load a reduction over all replicas, reduce into all, store to all.
#pragma once

#include "mscclpp/arch/atomic_update.hpp"
#include "mscclpp/arch/multimem.hpp"
#include "mscclpp/arch/nan.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/element_kind.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

using arch::Accumulation;
using arch::HardwareReduceOp;
using arch::MulticastAddress;

/// The default accumulation of a load-reduce of T: fp32 for sums of fp16 and bf16, otherwise the instruction's default.
template <class T, HardwareReduceOp op>
inline constexpr Accumulation defaultAccumulation =
    hasElementKind<T>&& arch::isHalf(elementKind<T>) && op == HardwareReduceOp::Add ? Accumulation::F32
                                                                                    : Accumulation::Native;

namespace detail {

template <class T, HardwareReduceOp op>
constexpr MSCCLPP_HOST_DEVICE int findMulticastWidth() {
  for (int bytes = 16; hasElementKind<T> && bytes >= 4; bytes /= 2) {
    if (arch::multimemLoadReduces(op, elementKind<T>, bytes, Accumulation::Native))
      return bytes / static_cast<int>(sizeof(T));
  }
  return 0;
}

}  // namespace detail

/// The largest number of elements T per load-reduce; 0 if the switch cannot reduce T with op.
template <class T, HardwareReduceOp op>
inline constexpr int multicastWidth = detail::findMulticastWidth<T, op>();

namespace detail {

/// The CPU implementation of the reduction: in rank order, in the accumulator type of T whatever the instruction would
/// use, rounded once.
template <class T, int N, class Op>
class ReplicaReducer {
 public:
  MSCCLPP_INLINE explicit ReplicaReducer(const Vector<T, N>& first) {
    for (int i = 0; i < N; ++i) total_[i] = widen<T>(first[i]);
  }
  MSCCLPP_INLINE void add(const Vector<T, N>& next) {
    for (int i = 0; i < N; ++i) total_[i] = Op::combine(total_[i], widen<T>(next[i]));
  }
  MSCCLPP_INLINE Vector<T, N> finish() const {
    Vector<T, N> result;
    for (int i = 0; i < N; ++i) result[i] = narrow<T>(arch::canonicalNan(total_[i]));
    return result;
  }
#if !defined(__CUDACC_RTC__)
  static void update(std::byte* replica, const Vector<T, N>& value) {
    for (int i = 0; i < N; ++i) {
      arch::host::update(reinterpret_cast<T*>(replica) + i, [&](T theirs) {
        return narrow<T>(arch::canonicalNan(Op::combine(widen<T>(theirs), widen<T>(value[i]))));
      });
    }
  }
#endif

 private:
  Accumulator<T> total_[N];
};

}  // namespace detail

/// A pointer to elements of multicast memory, of which every rank of the group has a replica. Accesses are relaxed at
/// system scope; a SwitchSemaphore orders them (sync/switch_semaphore.hpp). Each call is made by one thread.
/// arch/multimem_table.hpp lists the types, operators and widths; others do not compile.
template <class T>
struct MulticastPointer {
  MulticastAddress address;

  MSCCLPP_INLINE MulticastPointer operator+(std::size_t elements) const { return {address + elements * sizeof(T)}; }

  /// Loads the reduction of N elements over all replicas. A GPU's switch reduces in an unspecified order, so the last
  /// bit of a floating-point sum may differ between calls. CPU ranks reduce in rank order, in the accumulator type of
  /// T.
  template <int N, HardwareReduceOp op = HardwareReduceOp::Add, Accumulation in = defaultAccumulation<T, op>>
  MSCCLPP_INLINE Vector<T, N> loadReduce() const {
    static_assert(hasElementKind<T>, "the switch reduces fp16, bf16, float, double, fp8, and 32- and 64-bit integers");
    using Op = typename detail::OperatorOf<op>::Type;
    return arch::multimemLoadReduce<op, elementKind<T>, in, detail::ReplicaReducer<T, N, Op>, Vector<T, N>>(address);
  }

  /// Reduces value into every replica: each of the N elements becomes op(itself, its element of value), atomically.
  template <HardwareReduceOp op = HardwareReduceOp::Add, int N>
  MSCCLPP_INLINE void storeReduce(const Vector<T, N>& value) const {
    static_assert(hasElementKind<T>, "the switch reduces fp16, bf16, float, double, and 32- and 64-bit integers");
    using Op = typename detail::OperatorOf<op>::Type;
    arch::multimemStoreReduce<op, elementKind<T>, detail::ReplicaReducer<T, N, Op>>(address, value);
  }

  /// Stores value, 4, 8 or 16 bytes, to every replica.
  template <int N>
  MSCCLPP_INLINE void store(const Vector<T, N>& value) const {
    arch::multimemStore(address, value);
  }
};

}  // namespace mscclpp
