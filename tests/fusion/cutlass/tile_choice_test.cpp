// The choice of a tile: that of the shortest time which was measured on an H100.
#include "mscclpp/fusion/cutlass/tile_choice.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace mscclpp;

namespace {

constexpr int multiprocessors = 132;

int columnsFor(int m, int n, int k) {
  return cutlassTiles[cutlassTileFor(m, n, k, multiprocessors)].columns;
}

}  // namespace

TEST_CASE("tile choice: few rows take narrow tiles, which occupy the GPU") {
  for (const int rows : {1, 64, 128}) {
    for (const int depth : {1024, 4096, 14336}) {
      CAPTURE(rows);
      CAPTURE(depth);
      CHECK(columnsFor(rows, 8192, depth) == 64);
      CHECK(columnsFor(rows, 5120, depth) == 64);
    }
  }
}
TEST_CASE("tile choice: many rows take the widest tile, unless it leaves half of a round idle") {
  CHECK(columnsFor(1024, 8192, 4096) == 256);
  CHECK(columnsFor(1024, 16384, 8192) == 256);
  CHECK(columnsFor(8192, 8192, 14336) == 256);
  CHECK(columnsFor(1024, 5120, 4096) < 256);  // 160 tiles of 256 columns
  CHECK(columnsFor(4096, 5120, 4096) == 256);
}
TEST_CASE("tile choice: fp8 has tiles of its own") {
  const auto tileFor = [](int m, int n, int k) { return cutlassTiles[cutlassTileFor(m, n, k, multiprocessors, 1)]; };
  CHECK(tileFor(8192, 8192, 14336).columns == 256);
  CHECK(tileFor(2048, 3072, 8192).columns == 192);
  CHECK(tileFor(2048, 1280, 8192).columns == 160);
  CHECK(tileFor(256, 8192, 4096).columns == 128);
  CHECK(tileFor(8192, 8192, 4096).operandBytes == 1);
  CHECK(cutlassTiles[cutlassTileFor(8192, 8192, 4096, multiprocessors)].operandBytes == 2);
}
TEST_CASE("tile choice: the time grows with each dimension and falls with the multiprocessors") {
  for (int tile = 0; tile < cutlassTileCount + cutlassFp8TileCount; ++tile) {
    const double time = cutlassTime(tile, 1000, 6000, 2000, multiprocessors);
    CHECK(cutlassTime(tile, 3000, 6000, 2000, multiprocessors) > time);
    CHECK(cutlassTime(tile, 1000, 18000, 2000, multiprocessors) > time);
    CHECK(cutlassTime(tile, 1000, 6000, 2100, multiprocessors) > time);
    CHECK(cutlassTime(tile, 1000, 6000, 2000, multiprocessors / 2) > time);
  }
}
