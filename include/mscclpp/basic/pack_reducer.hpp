// Reductions of packs: of registers, and of whole arrays.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Reduces packs of T in T's accumulator type, in the order of the calls of add(). Callers add in rank order from 0, so
/// that every rank computes the same bits. op: the operator; it may have state (ReductionOperator).
template <class T, class Op>
class PackReducer {
 public:
  MSCCLPP_INLINE PackReducer(const Pack<T>& first, const Op& op) : op_(op) {
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) total_[i] = widen<T>(first[i]);
  }

  MSCCLPP_INLINE void add(const Pack<T>& next) {
    if constexpr (ChoosesOperator<Op>) {
      Accumulator<T> terms[packSize<T>];
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) terms[i] = widen<T>(next[i]);
      op_.with([&](const auto& op) {
        MSCCLPP_UNROLL
        for (int i = 0; i < packSize<T>; ++i) total_[i] = op.combine(total_[i], terms[i]);
      });
    } else {
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) total_[i] = op_.combine(total_[i], widen<T>(next[i]));
    }
  }

  /// The result over `ranks` packs, rounded once. Every NaN is the canonical quiet NaN (arch/nan.hpp).
  MSCCLPP_INLINE Pack<T> finish(int ranks) const {
    Pack<T> result;
    if constexpr (ChoosesOperator<Op>) {
      Accumulator<T> totals[packSize<T>];
      op_.with([&](const auto& op) {
        MSCCLPP_UNROLL
        for (int i = 0; i < packSize<T>; ++i) totals[i] = op.finish(total_[i], ranks);
      });
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) result[i] = narrow<T>(arch::canonicalNan(totals[i]));
    } else {
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) result[i] = narrow<T>(arch::canonicalNan(op_.finish(total_[i], ranks)));
    }
    return result;
  }

 private:
  Accumulator<T> total_[packSize<T>];
  [[no_unique_address]] Op op_;
};

/// The reduction of the packs of n ranks, in rank order. ranks: by how many an average divides.
template <class T, int n, class Op>
MSCCLPP_INLINE Word128 reduceWords(const Word128 (&words)[n], const Op& op, int ranks = n) {
  PackReducer<T, Op> reducer(fromWord<T>(words[0]), op);
  MSCCLPP_UNROLL
  for (int r = 1; r < n; ++r) reducer.add(fromWord<T>(words[r]));
  return toWord<T>(reducer.finish(ranks));
}

/// The reduction of the arrays of `ranks` ranks, of `bytes` bytes each, in rank order; by one thread, without a branch
/// per pack, so that memory bandwidth is the limit. result may be one of the arrays. On a CPU, at any alignment.
template <class T, class Op>
MSCCLPP_INLINE void reduceArrays(const std::byte* const* arrays, int ranks, std::byte* result, std::size_t bytes,
                                 const Op& op) {
  const auto reduce = [&](const auto& load) {
    PackReducer<T, Op> reducer(fromWord<T>(load(0)), op);
    MSCCLPP_UNROLL
    for (int r = 1; r < ranks; ++r) reducer.add(fromWord<T>(load(r)));
    return toWord<T>(reducer.finish(ranks));
  };
  const std::size_t whole = bytes / sizeof(Word128) * sizeof(Word128);
  for (std::size_t at = 0; at < whole; at += sizeof(Word128)) {
    arch::storeWide(result + at, reduce([&](int r) { return arch::loadWide(arrays[r] + at); }));
  }
  if (whole == bytes) return;
  const Word128 last = reduce([&](int r) {
    Word128 word{0, 0};
    arch::copyBytes(&word, arrays[r] + whole, bytes - whole);
    return word;
  });
  arch::copyBytes(result + whole, &last, bytes - whole);
}
/// The same with an operator whose value chooses among others.
template <class T, ChoosesOperator Op>
MSCCLPP_INLINE void reduceArrays(const std::byte* const* arrays, int ranks, std::byte* result, std::size_t bytes,
                                 const Op& op) {
  op.with([&](const auto& chosen) { reduceArrays<T>(arrays, ranks, result, bytes, chosen); });
}

}  // namespace mscclpp
