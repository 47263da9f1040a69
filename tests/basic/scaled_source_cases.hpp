// Cases of basic/scaled_source.hpp: arrays of every type at any alignment, with every kind of factor.
#pragma once

#include <doctest/doctest.h>

#include <type_traits>

#include "float_format.hpp"
#include "mscclpp/basic/scaled_source.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

enum class FactorKind { None, Value, Address };

/// Copies an array through the source.
template <class T>
struct ScaledBody {
  Window<> dst;
  Window<> src;
  Window<> factors;
  FactorKind kind;
  std::size_t srcOffset, count;  // in elements

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    constexpr std::size_t size = packSize<T>;
    const T* const at = reinterpret_cast<const T*>(factors.at(rank));
    const ScaledArraySource<T> source(reinterpret_cast<const T*>(src.at(rank)) + srcOffset,
                                      kind == FactorKind::None    ? ScaleFactor<T>::none()
                                      : kind == FactorKind::Value ? ScaleFactor<T>::value(*at)
                                                                  : ScaleFactor<T>::at(at));
    const ArraySink<T> sink(reinterpret_cast<T*>(dst.at(rank)));
    const auto block = grid.block();
    for (std::size_t first = size * block.rank(); first < count; first += size * block.size()) {
      const int valid = static_cast<int>(count - first < size ? count - first : size);
      sink(first, source(first, valid), valid);
    }
  }
};

/// Whether `result` is value * factor, rounded once: integers modulo 2^bits, otherwise in the accumulator type.
template <class T>
bool isScaled(T result, T value, T factor) {
  if constexpr (std::is_integral_v<T>) {
    return result == static_cast<T>(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(factor));
  } else {
    using A = Accumulator<T>;
    return sameValue(decode(result), decode(narrow<T>(static_cast<A>(decode(value)) * static_cast<A>(decode(factor)))));
  }
}

template <class T>
void checkScaledSource() {
  Backend<> backend;
  constexpr std::size_t capacity = 200;
  const auto data = randomBits<T>(capacity, 3);
  auto src = backend.allocate(1, capacity * sizeof(T), 0);
  src.write(0, data);
  const T sample[] = {narrow<T>(Accumulator<T>{3}), narrow<T>(Accumulator<T>{1}), randomBits<T>(1, 8)[0]};
  for (const T factor : sample) {
    auto factors = backend.allocate(1, 16, poisonByte);
    factors.write(0, std::vector<T>{factor});
    for (const FactorKind kind : {FactorKind::None, FactorKind::Value, FactorKind::Address}) {
      for (const std::size_t srcOffset : {0, 1}) {
        for (const std::size_t count : {0, 1, 16, 33, 150}) {
          CAPTURE(count);
          auto dst = backend.allocate(1, capacity * sizeof(T), poisonByte);
          backend.launch({1, 1, 1},
                         ScaledBody<T>{dst.window(), src.window(), factors.window(), kind, srcOffset, count});
          const auto result = dst.template read<T>(0);
          std::vector<T> expected(capacity);
          std::memset(static_cast<void*>(expected.data()), poisonByte, capacity * sizeof(T));
          std::memcpy(static_cast<void*>(expected.data()), data.data() + srcOffset, count * sizeof(T));
          std::size_t wrong = 0;
          for (std::size_t i = 0; kind != FactorKind::None && i < count; ++i) {
            wrong += !isScaled(result[i], expected[i], factor);
            expected[i] = result[i];
          }
          CHECK(wrong == 0);
          CHECK(firstDifference(result, expected) == -1);  // without a factor, NaNs keep their bits too
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("scaled_source: every kind of factor", T, f16, bf16, f8e4m3, f8e5m2, float, double, std::int8_t,
                   std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t) {
  checkScaledSource<T>();
}

}  // namespace mscclpp::test
