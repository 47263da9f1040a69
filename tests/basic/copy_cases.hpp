// Cases of basic/copy.hpp: every alignment of both pointers, every small size, and large ones; no other byte changes.
#pragma once

#include <doctest/doctest.h>

#include <array>

#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// The index of a case determines alignments and size; each case has its own strip of the destination.
struct SmallCopies {
  static constexpr std::size_t alignments = 17;
  static constexpr std::size_t sizes = 101;
  static constexpr std::size_t strip = 128;
  static constexpr std::size_t count = alignments * alignments * sizes;

  static MSCCLPP_HOST_DEVICE std::size_t dst(std::size_t i) { return i * strip + i % alignments; }
  static MSCCLPP_HOST_DEVICE std::size_t src(std::size_t i) { return i / alignments % alignments; }
  static MSCCLPP_HOST_DEVICE std::size_t size(std::size_t i) { return i / alignments / alignments; }
};

struct SmallCopiesBody {
  Window<> dst;
  Window<> src;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using C = SmallCopies;
    for (std::size_t i = grid.blockIndex(); i < C::count; i += grid.blockCount())
      copy(grid.block(), dst.at(rank) + C::dst(i), src.at(rank) + C::src(i), C::size(i));
  }
};

TEST_CASE("copy: all alignments and all sizes up to 100") {
  using C = SmallCopies;
  Backend<> backend;
  auto dst = backend.allocate(1, C::count * C::strip, poisonByte);
  auto src = backend.allocate(1, 256, 0);
  const auto data = randomBits<std::byte>(256, 1);
  src.write(0, data);
  backend.launch({1, 2, 1}, SmallCopiesBody{dst.window(), src.window()});
  std::vector<std::byte> expected(C::count * C::strip, std::byte{poisonByte});
  for (std::size_t i = 0; i < C::count; ++i) {
    std::memcpy(expected.data() + C::dst(i), data.data() + C::src(i), C::size(i));
  }
  CHECK(firstDifference(dst.read(0), expected) == -1);
}

struct CopyBody {
  Window<> dst;
  Window<> src;
  std::size_t dstOffset, srcOffset, bytes;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    copy(grid.warp(), dst.at(rank, dstOffset), src.at(rank, srcOffset), bytes);
  }
};

TEST_CASE("copy: large sizes") {
  constexpr std::size_t capacity = (1 << 18) + 64;
  const auto data = randomBits<std::byte>(capacity, 2);
  Backend<> backend;
  auto src = backend.allocate(1, capacity, 0);
  src.write(0, data);
  using Case = std::array<std::size_t, 3>;
  for (const auto& [dstOffset, srcOffset, bytes] :
       {Case{0, 0, 1 << 18}, Case{3, 19, 200'001}, Case{8, 16, 131'077}, Case{4, 24, 65'553}, Case{1, 0, 40'000}}) {
    auto dst = backend.allocate(1, capacity, poisonByte);
    backend.launch({1, 1, 1}, CopyBody{dst.window(), src.window(), dstOffset, srcOffset, bytes});
    std::vector<std::byte> expected(capacity, std::byte{poisonByte});
    std::memcpy(expected.data() + dstOffset, data.data() + srcOffset, bytes);
    CHECK(firstDifference(dst.read(0), expected) == -1);
  }
}

template <class T>
struct CopyReduceBody {
  Window<> dst;
  Window<> src;
  std::size_t count;
  int srcShift;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    copyReduce<Sum>(grid.block(), reinterpret_cast<T*>(dst.at(rank)) + 1,
                    reinterpret_cast<const T*>(src.at(rank)) + srcShift, count);
  }
};

/// The data are small integers, whose sums are exact in every type.
template <class T>
void checkCopyReduce(std::size_t count, int srcShift) {
  const auto element = [](std::size_t value) { return narrow<T>(static_cast<Accumulator<T>>(value)); };
  Backend<> backend;
  auto dst = backend.allocate(1, (count + 4) * sizeof(T), 0);
  auto src = backend.allocate(1, (count + 4) * sizeof(T), 0);
  std::vector<T> into(count + 4), from(count + 4);
  for (std::size_t i = 0; i < count + 4; ++i) {
    into[i] = element(i % 5);
    from[i] = element(i % 7);
  }
  dst.write(0, into);
  src.write(0, from);
  backend.launch({1, 1, 2}, CopyReduceBody<T>{dst.window(), src.window(), count, srcShift});
  for (std::size_t i = 0; i < count; ++i)
    into[i + 1] = element((i + 1) % 5 + (i + static_cast<std::size_t>(srcShift)) % 7);
  CHECK(firstDifference(dst.template read<T>(0), into) == -1);
}

TEST_CASE("copy: copyReduce adds to the destination and changes nothing else") {
  for (std::size_t count : {0, 1, 2, 31, 64, 65, 1000}) {
    for (const int srcShift : {1, 2}) {  // 1, as for the destination: 16 bytes at a time
      checkCopyReduce<float>(count, srcShift);
      checkCopyReduce<bf16>(count, srcShift);
      checkCopyReduce<f8e4m3>(count, srcShift);
      checkCopyReduce<std::int64_t>(count, srcShift);
      checkCopyReduce<std::uint8_t>(count, srcShift);
    }
  }
}

}  // namespace mscclpp::test
