// Cases of basic/source_sink.hpp: packs of an array at any alignment, with a partial last pack.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/basic/source_sink.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class T>
struct AccessBody {
  Window<> dst;
  Window<> src;
  std::size_t dstOffset, srcOffset, count;  // in elements

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    constexpr std::size_t size = packSize<T>;
    const ArraySource<T> source(reinterpret_cast<const T*>(src.at(rank)) + srcOffset);
    const ArraySink<T> sink(reinterpret_cast<T*>(dst.at(rank)) + dstOffset);
    const auto block = grid.block();
    for (std::size_t first = size * block.rank(); first < count; first += size * block.size()) {
      const int valid = static_cast<int>(count - first < size ? count - first : size);
      sink(first, source(first, valid), valid);
    }
  }
};

template <class T>
void checkAccess() {
  Backend<> backend;
  constexpr std::size_t capacity = 200;
  const auto data = randomBits<T>(capacity, 3);
  auto src = backend.allocate(1, capacity * sizeof(T), 0);
  src.write(0, data);
  for (std::size_t dstOffset : {0, 1, 4}) {
    for (std::size_t srcOffset : {0, 1, 3}) {
      for (std::size_t count : {0, 1, 2, 7, 16, 33, 150}) {
        auto dst = backend.allocate(1, capacity * sizeof(T), poisonByte);
        backend.launch({1, 1, 1}, AccessBody<T>{dst.window(), src.window(), dstOffset, srcOffset, count});
        std::vector<T> expected(capacity);
        std::memset(static_cast<void*>(expected.data()), poisonByte, capacity * sizeof(T));
        std::memcpy(static_cast<void*>(expected.data() + dstOffset), data.data() + srcOffset, count * sizeof(T));
        CHECK(firstDifference(dst.template read<T>(0), expected) == -1);
      }
    }
  }
}

TEST_CASE("source_sink: arrays at any alignment") {
  checkAccess<std::uint8_t>();
  checkAccess<bf16>();
  checkAccess<float>();
  checkAccess<double>();
}

}  // namespace mscclpp::test
