// Cases of basic/access.hpp: packs of an array at any alignment, the last one partial.
#pragma once

#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/data.hpp"
#include "mscclpp/basic/access.hpp"

namespace mscclpp::test {

template <class T>
struct AccessBody {
  Window<> dst;
  Window<> src;
  std::size_t dstOffset, srcOffset, count;  // in elements

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    constexpr std::size_t size = packSize<T>;
    const LoadFrom<T> source(reinterpret_cast<const T*>(src.at(rank)) + srcOffset);
    const StoreTo<T> sink(reinterpret_cast<T*>(dst.at(rank)) + dstOffset);
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
  constexpr std::size_t room = 200;
  const auto data = randomBits<T>(room, 3);
  auto src = backend.allocate(1, room * sizeof(T), 0);
  src.write(0, data);
  for (std::size_t dstOffset : {0, 1, 4}) {
    for (std::size_t srcOffset : {0, 1, 3}) {
      for (std::size_t count : {0, 1, 2, 7, 16, 33, 150}) {
        auto dst = backend.allocate(1, room * sizeof(T), poisonByte);
        backend.launch({1, 1, 1}, AccessBody<T>{dst.window(), src.window(), dstOffset, srcOffset, count});
        std::vector<T> expected(room);
        std::memset(static_cast<void*>(expected.data()), poisonByte, room * sizeof(T));
        std::memcpy(static_cast<void*>(expected.data() + dstOffset), data.data() + srcOffset, count * sizeof(T));
        CHECK(firstDifference(dst.template read<T>(0), expected) == -1);
      }
    }
  }
}

TEST_CASE("access: arrays at any alignment") {
  checkAccess<std::uint8_t>();
  checkAccess<bf16>();
  checkAccess<float>();
  checkAccess<double>();
}

}  // namespace mscclpp::test
