// Test data as functions of rank and index, for CPUs and GPUs: the inputs, and whether an output element is correct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::perf {

/// The inputs of one call, on all ranks.
struct InputRule {
  std::uint64_t seed;
  ReduceOp op;  ///< the values of a reduction depend on it; not used otherwise
};

/// Where the elements of one rank's output come from. Element i of a mover is one of the input of rank
/// `firstSender + i / part`, at `offset + i % part`; of a reduction, one of all ranks' inputs at `offset + i`.
struct OutputRule {
  InputRule inputs;
  int ranks;
  int firstSender;
  std::size_t part;
  std::size_t offset;
  /// Allow a rounding to the element type after every addition, as NCCL rounds 16-bit types.
  bool roundsEachAddition;
};

MSCCLPP_INLINE std::uint64_t randomBits(std::uint64_t seed, int rank, std::size_t index) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(rank) + 1) + index * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The distance of neighbouring values of T near 1.
template <class T>
MSCCLPP_INLINE constexpr double machineEpsilon() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-52;
  if constexpr (std::is_same_v<T, float>) return 0x1p-23;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-10;
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-7;
  if constexpr (std::is_same_v<T, f8e4m3>) return 0x1p-3;
  if constexpr (std::is_same_v<T, f8e5m2>) return 0x1p-2;
  return 0;
}

/// The smallest subnormal of T: the distance of neighbouring values near 0.
template <class T>
MSCCLPP_INLINE constexpr double smallestSubnormal() {
  if constexpr (std::is_same_v<T, f16>) return 0x1p-24;
  if constexpr (std::is_same_v<T, f8e4m3>) return 0x1p-9;
  if constexpr (std::is_same_v<T, f8e5m2>) return 0x1p-16;
  return 0x1p-133;
}

/// Data of a collective that only moves elements: any bits, compared bitwise. Word: an unsigned integer.
template <class Word>
struct MovedData {
  using Type = Word;

  MSCCLPP_INLINE static Word input(const InputRule& rule, int rank, std::size_t index) {
    return static_cast<Word>(randomBits(rule.seed, rank, index));
  }
  MSCCLPP_INLINE static bool isCorrect(const OutputRule& rule, std::size_t i, Word got) {
    const int sender = rule.firstSender + static_cast<int>(i / rule.part);
    return got == input(rule.inputs, sender, rule.offset + i % rule.part);
  }
};

/// Data of a reduction of T. The reference is in double precision.
template <class T>
struct ReducedData {
  using Type = T;
  static constexpr bool isInteger = std::is_integral_v<T>;

  /// Small integers for integer types (sums do not overflow for up to 16 ranks), numbers in [-1, 1] for floating types,
  /// close to 1 for products.
  MSCCLPP_INLINE static T input(const InputRule& rule, int rank, std::size_t index) {
    return toElement(value(randomBits(rule.seed, rank, index), rule.op == ReduceOp::PROD));
  }

  /// Whether an element differs from the reduction by no more than the rounding of T and of a single-precision
  /// accumulation in any order. Integers, minima and maxima must be exact.
  MSCCLPP_INLINE static bool isCorrect(const OutputRule& rule, std::size_t i, T got) {
    const ReduceOp op = rule.inputs.op;
    double total = 0;
    double magnitude = 0;
    for (int rank = 0; rank < rule.ranks; ++rank) {
      const double x = toDouble(input(rule.inputs, rank, rule.offset + i));
      magnitude += absolute(x);
      total = rank == 0 ? x : combine(op, total, x);
    }
    if (op == ReduceOp::PROD) magnitude = absolute(total);
    if (op == ReduceOp::AVG) {
      total /= rule.ranks;
      magnitude /= rule.ranks;
    }
    if constexpr (isInteger) {
      return got == toElement(total);  // rounds an average towards 0
    } else {
      if (op == ReduceOp::MAX || op == ReduceOp::MIN) return toDouble(got) == total;
      const double accumulation = sizeof(T) == 8 ? 0x1p-52 : 0x1p-23;
      const double eachAddition = rule.roundsEachAddition ? machineEpsilon<T>() : accumulation;
      const double allowed =
          machineEpsilon<T>() * absolute(total) + eachAddition * rule.ranks * magnitude + smallestSubnormal<T>();
      return absolute(toDouble(got) - total) <= allowed;  // false for a NaN
    }
  }

 private:
  MSCCLPP_INLINE static double absolute(double x) { return x < 0 ? -x : x; }

  MSCCLPP_INLINE static double value(std::uint64_t bits, bool isProduct) {
    if constexpr (isInteger) {
      if (isProduct) return static_cast<double>(1 + bits % 2);
      return static_cast<double>(bits % 15) - (std::is_signed_v<T> ? 7.0 : 0.0);
    } else {
      const double unit = static_cast<double>(bits >> 40) * 0x1p-24;  // [0, 1)
      return isProduct ? 0.75 + unit / 2 : 2 * unit - 1;
    }
  }
  MSCCLPP_INLINE static double combine(ReduceOp op, double a, double b) {
    if (op == ReduceOp::PROD) return a * b;
    if (op == ReduceOp::MAX) return a < b ? b : a;
    if (op == ReduceOp::MIN) return b < a ? b : a;
    return a + b;
  }
  MSCCLPP_INLINE static T toElement(double value) {
    if constexpr (isInteger) {
      return static_cast<T>(static_cast<std::int64_t>(value));
    } else {
      return narrow<T>(static_cast<Accumulator<T>>(value));
    }
  }
  MSCCLPP_INLINE static double toDouble(T value) { return static_cast<double>(widen<T>(value)); }
};

}  // namespace mscclpp::perf
