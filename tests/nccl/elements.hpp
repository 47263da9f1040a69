// Small integers as elements of NCCL's types: sums, products and averages of them are exact in each type, so that every
// correct implementation gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/nccl/api.hpp"

namespace mscclpp::test {

struct ElementFormat {
  int bytes;
  int exponentBits;  // 0: an integer
  int mantissaBits;
};

inline ElementFormat formatOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return {1, 0, 0};
    case ncclInt32:
    case ncclUint32:
      return {4, 0, 0};
    case ncclInt64:
    case ncclUint64:
      return {8, 0, 0};
    case ncclFloat16:
      return {2, 5, 10};
    case ncclFloat32:
      return {4, 8, 23};
    case ncclFloat64:
      return {8, 11, 52};
    case ncclBfloat16:
      return {2, 8, 7};
    case ncclFloat8e4m3:
      return {1, 4, 3};
    case ncclFloat8e5m2:
      return {1, 5, 2};
    default:
      return {0, 0, 0};
  }
}

/// The bits of a number that is not negative and exact in the format; halves and quarters are, too.
inline std::uint64_t bitsOf(const ElementFormat& format, double value) {
  if (format.exponentBits == 0) return static_cast<std::uint64_t>(value);
  if (value == 0) return 0;
  int exponent = 0;
  for (; value >= 2; value /= 2) ++exponent;
  for (; value < 1; value *= 2) --exponent;
  const std::uint64_t bias = (std::uint64_t{1} << (format.exponentBits - 1)) - 1;
  const auto mantissa =
      static_cast<std::uint64_t>((value - 1) * static_cast<double>(std::uint64_t{1} << format.mantissaBits));
  return ((bias + static_cast<std::uint64_t>(exponent)) << format.mantissaBits) | mantissa;
}

/// A buffer's bytes.
using Bytes = std::vector<unsigned char>;

inline Bytes encode(ncclDataType_t type, const std::vector<double>& values) {
  const ElementFormat format = formatOf(type);
  Bytes bytes(values.size() * static_cast<std::size_t>(format.bytes));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = bitsOf(format, values[i]);
    std::memcpy(bytes.data() + i * static_cast<std::size_t>(format.bytes), &bits,
                static_cast<std::size_t>(format.bytes));
  }
  return bytes;
}

/// What rank `rank` has as element i: 0 or 1 for sums; products and extremes are of 1 and 2.
inline double valueOf(int rank, std::size_t i, int least = 0) {
  return static_cast<double>(least) + static_cast<double>((static_cast<std::size_t>(rank) * 3 + i + i / 7) % 2);
}

inline std::vector<double> valuesOf(int rank, std::size_t first, std::size_t count, int least = 0) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = valueOf(rank, first + i, least);
  return values;
}

/// Elements [first, first + count) of the reduction over `ranks` ranks.
inline std::vector<double> reducedValues(ncclRedOp_t op, bool isInteger, int ranks, std::size_t first,
                                         std::size_t count, int least) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    double result = valueOf(0, first + i, least);
    for (int rank = 1; rank < ranks; ++rank) {
      const double value = valueOf(rank, first + i, least);
      if (op == ncclProd) result *= value;
      if (op == ncclSum || op == ncclAvg) result += value;
      if (op == ncclMax) result = std::max(result, value);
      if (op == ncclMin) result = std::min(result, value);
    }
    if (op == ncclAvg) result /= ranks;
    values[i] = isInteger ? static_cast<double>(static_cast<std::int64_t>(result)) : result;
  }
  return values;
}

}  // namespace mscclpp::test
