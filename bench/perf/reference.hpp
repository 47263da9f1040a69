// Test data that every rank can recompute, and the check of a reduction against it in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::perf {

/// Element `index` of `rank`'s input, before rounding to T: small integers for integer types (sums do not overflow for
/// up to 16 ranks), numbers in [-1, 1] for floating types, close to 1 for products.
inline double inputValue(std::uint64_t seed, int rank, std::size_t index, bool integer, bool isSigned, bool product) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(rank) + 1) + index * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  if (integer) {
    if (product) return static_cast<double>(1 + x % 2);
    return isSigned ? static_cast<double>(x % 15) - 7.0 : static_cast<double>(x % 15);
  }
  const double unit = static_cast<double>(x >> 40) / static_cast<double>(1u << 24);  // [0, 1)
  return product ? 0.75 + unit / 2 : 2 * unit - 1;
}

template <class T>
inline constexpr bool isInteger = std::is_integral_v<T>;

template <class T>
T toElement(double value) {
  if constexpr (isInteger<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value));
  } else {
    return narrow<T>(static_cast<Accumulator<T>>(value));
  }
}
template <class T>
double toDouble(T value) {
  return static_cast<double>(widen<T>(value));
}

/// Machine epsilon of T: the distance of neighbouring values near 1.
template <class T>
double machineEpsilon() {
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
double smallestSubnormal() {
  if constexpr (std::is_same_v<T, f16>) return 0x1p-24;
  if constexpr (std::is_same_v<T, f8e4m3>) return 0x1p-9;
  if constexpr (std::is_same_v<T, f8e5m2>) return 0x1p-16;
  return 0x1p-133;
}

/// The `count` elements of the rank's input, as bytes.
inline std::vector<std::byte> makeInput(DataType type, ReduceOp op, std::uint64_t seed, int rank, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeOf(type));
  visit(
      type,
      [&](auto tag) {
        using T = typename decltype(tag)::Type;
        for (std::size_t i = 0; i < count; ++i) {
          const T value =
              toElement<T>(inputValue(seed, rank, i, isInteger<T>, std::is_signed_v<T>, op == ReduceOp::PROD));
          std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
        }
      },
      [] {});
  return bytes;
}

/// The number of elements of `output` that differ from the reduction of all ranks' inputs by more than the rounding of
/// the type and of a single-precision accumulation in any order; integers must be exact. roundsEachAddition: allow a
/// rounding to T after every addition, as NCCL does for 16-bit types.
inline std::size_t countWrong(const std::vector<std::byte>& output, DataType type, ReduceOp op, std::uint64_t seed,
                              int ranks, std::size_t count, bool roundsEachAddition) {
  std::size_t wrong = 0;
  visit(
      type,
      [&](auto tag) {
        using T = typename decltype(tag)::Type;
        const double eachRounding =
            isInteger<T> ? 0 : (roundsEachAddition ? machineEpsilon<T>() : (sizeof(T) == 8 ? 0x1p-52 : 0x1p-23));
        for (std::size_t i = 0; i < count; ++i) {
          double total = 0;
          double magnitude = 0;
          for (int r = 0; r < ranks; ++r) {
            const double x = toDouble<T>(
                toElement<T>(inputValue(seed, r, i, isInteger<T>, std::is_signed_v<T>, op == ReduceOp::PROD)));
            magnitude += std::abs(x);
            if (r == 0) {
              total = x;
            } else if (op == ReduceOp::PROD) {
              total *= x;
            } else if (op == ReduceOp::MAX) {
              total = std::max(total, x);
            } else if (op == ReduceOp::MIN) {
              total = std::min(total, x);
            } else {
              total += x;
            }
          }
          if (op == ReduceOp::PROD) magnitude = std::abs(total);
          if (op == ReduceOp::AVG) {
            total = isInteger<T> ? std::trunc(total / ranks) : total / ranks;
            magnitude /= ranks;
          }
          T got;
          std::memcpy(&got, output.data() + i * sizeof(T), sizeof(T));
          const bool exact = isInteger<T> || op == ReduceOp::MAX || op == ReduceOp::MIN;
          const double expected = isInteger<T> ? toDouble<T>(toElement<T>(total)) : total;
          const double allowed =
              exact ? 0
                    : machineEpsilon<T>() * std::abs(total) + eachRounding * ranks * magnitude + smallestSubnormal<T>();
          if (!(std::abs(toDouble<T>(got) - expected) <= allowed)) ++wrong;
        }
      },
      [] {});
  return wrong;
}

}  // namespace mscclpp::perf
