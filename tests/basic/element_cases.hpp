// Cases of basic/element.hpp: widening is exact, narrowing rounds to nearest even, for every bit pattern of the small
// types.
#pragma once

#include <doctest/doctest.h>

#include <utility>

#include "float_format.hpp"
#include "mscclpp/basic/element.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class T>
struct Widen {
  using From = T;
  using To = Accumulator<T>;
  static MSCCLPP_HOST_DEVICE To convert(From value) { return widen<T>(value); }
};
template <class T>
struct Narrow {
  using From = Accumulator<T>;
  using To = T;
  static MSCCLPP_HOST_DEVICE To convert(From value) { return narrow<T>(value); }
};

template <class Conversion>
struct ConvertBody {
  Window<> to;
  Window<> from;
  int count;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto* in = reinterpret_cast<const typename Conversion::From*>(from.at(rank));
    auto* out = reinterpret_cast<typename Conversion::To*>(to.at(rank));
    const auto block = grid.block();
    for (int i = block.rank(); i < count; i += block.size()) out[i] = Conversion::convert(in[i]);
  }
};

template <class Conversion>
auto converted(const std::vector<typename Conversion::From>& values) {
  using To = typename Conversion::To;
  Backend<> backend;
  auto to = backend.allocate(1, values.size() * sizeof(To), poisonByte);
  auto from = backend.allocate(1, values.size() * sizeof(values[0]), 0);
  from.write(0, values);
  backend.launch({1, 1, 1}, ConvertBody<Conversion>{to.window(), from.window(), static_cast<int>(values.size())});
  return to.template read<To>(0);
}

/// Every bit pattern of an 8- or 16-bit type.
template <class T>
std::vector<T> allPatterns() {
  std::vector<T> patterns(std::size_t{1} << (8 * sizeof(T)));
  for (std::size_t i = 0; i < patterns.size(); ++i) std::memcpy(static_cast<void*>(&patterns[i]), &i, sizeof(T));
  return patterns;
}

template <class T>
void checkSmallFloat() {
  const FloatFormat format = formatOf<T>();
  const auto patterns = allPatterns<T>();
  const auto wide = converted<Widen<T>>(patterns);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) wrong += !sameValue(wide[i], decode(patterns[i]));
  CHECK(wrong == 0);

  // Each value, the midpoints between neighbours, the values next to those, and random bits.
  auto values = randomBits<float>(20'000, 4);
  for (std::size_t i = 0; i + 1 < patterns.size(); ++i) {
    const float low = wide[i], high = wide[i + 1];
    const float middle = low / 2 + high / 2;
    for (float value : {low, middle, std::nextafter(middle, low), std::nextafter(middle, high)})
      values.push_back(value);
  }
  const auto top = static_cast<float>(format.largest());
  for (float value : {top, top * 1.01f, top * 1.1f, top * 2, -top * 1.01f, -top * 2, 1e-30f, -1e-30f})
    values.push_back(value);
  const auto narrowed = converted<Narrow<T>>(values);
  std::size_t bad = 0;
  while (bad < values.size() && sameValue(decode(narrowed[bad]), format.round(values[bad]))) ++bad;
  if (bad < values.size()) {
    FAIL("narrow(" << values[bad] << ") gave " << decode(narrowed[bad]) << ", not " << format.round(values[bad]));
  }
}

TEST_CASE("element: 16- and 8-bit floating-point types") {
  checkSmallFloat<f16>();
  checkSmallFloat<bf16>();
  checkSmallFloat<f8e4m3>();
  checkSmallFloat<f8e5m2>();
}

template <class T>
void checkInteger() {
  const auto values = randomBits<T>(3000, 5);
  const auto wide = converted<Widen<T>>(values);
  const auto accumulators = randomBits<Accumulator<T>>(3000, 6);
  const auto narrowed = converted<Narrow<T>>(accumulators);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += std::cmp_not_equal(wide[i], values[i]);
    wrong += std::memcmp(&narrowed[i], &accumulators[i], sizeof(T)) != 0;  // the low bits come first in memory
  }
  CHECK(wrong == 0);
}

TEST_CASE("element: integers") {
  checkInteger<std::int8_t>();
  checkInteger<std::uint8_t>();
  checkInteger<std::int16_t>();
  checkInteger<std::uint16_t>();
  checkInteger<std::int32_t>();
  checkInteger<std::uint32_t>();
  checkInteger<std::int64_t>();
  checkInteger<std::uint64_t>();
}

template <class T>
void checkWide() {
  const auto values = randomBits<T>(3000, 7);
  CHECK(firstDifference(converted<Widen<T>>(values), values) == -1);
  CHECK(firstDifference(converted<Narrow<T>>(values), values) == -1);
}

TEST_CASE("element: float and double are unchanged") {
  checkWide<float>();
  checkWide<double>();
}

}  // namespace mscclpp::test
