// Multicast memory as elements: load a reduction over all replicas, reduce into all of them, store to all of them.
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
using arch::Arithmetic;
using arch::MulticastAddress;

/// What a sum of T is loaded in if nobody says: fp32 for fp16 and bf16, else what the hardware takes.
template <class T, Arithmetic op>
inline constexpr Accumulation defaultAccumulation =
    hasElementKind<T>&& arch::isHalf(elementKind<T>) && op == Arithmetic::Add ? Accumulation::F32
                                                                              : Accumulation::Native;

namespace detail {

template <class T, Arithmetic op>
constexpr MSCCLPP_HOST_DEVICE int findMulticastWidth() {
  for (int bytes = 16; hasElementKind<T> && bytes >= 4; bytes /= 2) {
    if (arch::multimemLoadReduces(op, elementKind<T>, bytes, Accumulation::Native))
      return bytes / static_cast<int>(sizeof(T));
  }
  return 0;
}

}  // namespace detail

/// The most elements of T that one load-reduce takes; 0 if the switch cannot reduce T so.
template <class T, Arithmetic op>
inline constexpr int multicastWidth = detail::findMulticastWidth<T, op>();

namespace detail {

/// The arithmetic on a CPU: in the accumulator type of T, whatever the instruction would take; rank after rank, rounded once.
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
      arch::twin::update(reinterpret_cast<T*>(replica) + i, [&](T theirs) {
        return narrow<T>(arch::canonicalNan(Op::combine(widen<T>(theirs), widen<T>(value[i]))));
      });
    }
  }
#endif

 private:
  Accumulator<T> total_[N];
};

}  // namespace detail

/// A pointer to elements of multicast memory: one address, a replica on every rank of the group. Every access is relaxed at system scope; order comes from a
/// SwitchSemaphore (sync/switch_semaphore.hpp). Each call is made by one thread, which has the instruction to itself. What types, operators and widths there
/// are is in arch/multimem_table.hpp; others do not compile.
template <class T>
struct MulticastPointer {
  MulticastAddress address;

  MSCCLPP_INLINE MulticastPointer operator+(std::size_t elements) const { return {address + elements * sizeof(T)}; }

  /// The reduction of N elements over all replicas. A GPU's switch reduces in an order of its own: sums of floating-point numbers may differ in the last
  /// bit from call to call. CPU ranks reduce in the order of the ranks, in the accumulator type of T.
  template <int N, Arithmetic op = Arithmetic::Add, Accumulation in = defaultAccumulation<T, op>>
  MSCCLPP_INLINE Vector<T, N> loadReduce() const {
    static_assert(hasElementKind<T>,
                  "the switch reduces fp16, bf16, float, double, fp8, and integers of 32 and 64 bits");
    using Op = typename detail::OperatorOf<op>::Type;
    return arch::multimemLoadReduce<op, elementKind<T>, in, detail::ReplicaReducer<T, N, Op>, Vector<T, N>>(address);
  }

  /// Each replica's N elements become op of themselves and value, element by element and atomically.
  template <Arithmetic op = Arithmetic::Add, int N>
  MSCCLPP_INLINE void storeReduce(const Vector<T, N>& value) const {
    static_assert(hasElementKind<T>, "the switch reduces fp16, bf16, float, double, and integers of 32 and 64 bits");
    using Op = typename detail::OperatorOf<op>::Type;
    arch::multimemStoreReduce<op, elementKind<T>, detail::ReplicaReducer<T, N, Op>>(address, value);
  }

  /// Stores value into every replica: 4, 8 or 16 bytes.
  template <int N>
  MSCCLPP_INLINE void store(const Vector<T, N>& value) const {
    arch::multimemStore(address, value);
  }
};

}  // namespace mscclpp
