// Which tile a GEMM of CUTLASS had best have for a shape: a table of tiles, and the model that chooses.
#pragma once

namespace mscclpp {

enum class CutlassSchedule {
  Cooperative,  ///< two groups of warps compute a tile together
  Pingpong      ///< they take turns with tiles: the epilogue of one hides behind the other's multiplication
};

/// A tile of a warp-specialised kernel of CUTLASS for Hopper. Plain data, fit for a template argument.
struct CutlassTile {
  int rows;
  int columns;
  int depth;           ///< elements of the inner dimension in a step
  int clusterRows;     ///< blocks of a cluster: they share operands, rows of tiles those of B,
  int clusterColumns;  ///< columns of tiles those of A
  CutlassSchedule schedule;
  int operandBytes = 2;  ///< of an element
};

namespace detail {
/// A tile of 128 rows in a cluster of two, with steps of 128 bytes.
constexpr CutlassTile cutlassPair(int columns, CutlassSchedule schedule, int operandBytes = 2) {
  return {.rows = 128,
          .columns = columns,
          .depth = 128 / operandBytes,
          .clusterRows = 2,
          .clusterColumns = 1,
          .schedule = schedule,
          .operandBytes = operandBytes};
}
}  // namespace detail

/// The tiles to choose from: for 16-bit operands, and then for fp8. Tensor cores add products of fp8 with few bits, so
/// that their sums are added up in further registers: no tile for fp8 is Pingpong, and that of 256 columns has a main
/// loop of its own (WideFp8Mainloop).
inline constexpr CutlassTile cutlassTiles[] = {
    detail::cutlassPair(256, CutlassSchedule::Cooperative),
    detail::cutlassPair(192, CutlassSchedule::Cooperative),
    detail::cutlassPair(128, CutlassSchedule::Pingpong),
    {.rows = 128,
     .columns = 64,
     .depth = 128,
     .clusterRows = 1,
     .clusterColumns = 2,
     .schedule = CutlassSchedule::Cooperative},
    detail::cutlassPair(160, CutlassSchedule::Cooperative),
    detail::cutlassPair(192, CutlassSchedule::Cooperative, 1),
    detail::cutlassPair(128, CutlassSchedule::Cooperative, 1),
    detail::cutlassPair(160, CutlassSchedule::Cooperative, 1),
    detail::cutlassPair(256, CutlassSchedule::Cooperative, 1),
};
/// Those for 16-bit operands come first.
inline constexpr int cutlassTileCount = 5, cutlassFp8TileCount = 4;
static_assert(sizeof(cutlassTiles) / sizeof(cutlassTiles[0]) == cutlassTileCount + cutlassFp8TileCount);

/// What a multiprocessor does with a tile of cutlassTiles: measured on one H100, with fp8 on two H200
/// (docs/performance.md).
struct CutlassTileRate {
  double multiplyAdds;  ///< a nanosecond, at most
  double bytes;         ///< of operands that it loads in a nanosecond, at most
  double start;         ///< nanoseconds for the first operands and the last stores of a tile
};
inline constexpr CutlassTileRate cutlassTileRates[cutlassTileCount + cutlassFp8TileCount] = {
    {2830, 85, 1500}, {2760, 85, 1500}, {2680, 85, 500},  {1880, 85, 2000}, {2600, 85, 1500},
    {5000, 85, 1500}, {4700, 85, 1500}, {4900, 85, 1500}, {5100, 85, 1500}};

/// The tiles of so many rows or columns along a dimension of `size`, rounded up to a multiple.
inline long long cutlassTilesAlong(int size, int ofTile, int multiple = 1) {
  const long long count = (static_cast<long long>(size) + ofTile - 1) / ofTile;
  return (count + multiple - 1) / multiple * multiple;
}
/// The tiles of a GEMM of m x n as CUTLASS counts them, with this swizzle: a cluster is resident as a whole, and those
/// at the edges of the problem have blocks that compute nothing.
inline long long cutlassTilesOf(int tile, int m, int n, int swizzle = 1) {
  const CutlassTile& shape = cutlassTiles[tile];
  return cutlassTilesAlong(m, shape.rows, swizzle * shape.clusterRows) *
         cutlassTilesAlong(n, shape.columns, swizzle * shape.clusterColumns);
}
/// The rounds of tiles, one for each multiprocessor, in which a GEMM of m x n is computed with this tile.
inline double cutlassRounds(int tile, int m, int n, int multiprocessors, int swizzle = 1) {
  const CutlassTile& shape = cutlassTiles[tile];
  const int clusterSize = shape.clusterRows * shape.clusterColumns;
  const int blocks = multiprocessors / clusterSize * clusterSize;
  return static_cast<double>((cutlassTilesOf(tile, m, n, swizzle) + blocks - 1) / blocks);
}

/// The nanoseconds that a GEMM of m x n x k with this tile takes. What the multiprocessors cannot hide from each other,
/// the memory's time for the weights, is the same for all tiles.
inline double cutlassTime(int tile, int m, int n, int k, int multiprocessors) {
  const CutlassTile& shape = cutlassTiles[tile];
  const CutlassTileRate& rate = cutlassTileRates[tile];
  const double multiplying = double{1} * shape.rows * shape.columns * k / rate.multiplyAdds;
  const double loading = double{1} * shape.operandBytes * (shape.rows + shape.columns) * k / rate.bytes;
  return cutlassRounds(tile, m, n, multiprocessors) * ((multiplying > loading ? multiplying : loading) + rate.start);
}

/// The index in cutlassTiles of the tile for a GEMM of m x n x k, with operands of 16 bits or fp8, on a GPU of the
/// generation of the H100 with so many multiprocessors for it.
inline int cutlassTileFor(int m, int n, int k, int multiprocessors, int operandBytes = 2) {
  const int first = operandBytes == 2 ? 0 : cutlassTileCount;
  const int end = first + (operandBytes == 2 ? cutlassTileCount : cutlassFp8TileCount);
  int best = first;
  for (int tile = first + 1; tile < end; ++tile) {
    if (cutlassTime(tile, m, n, k, multiprocessors) < cutlassTime(best, m, n, k, multiprocessors)) best = tile;
  }
  return best;
}

}  // namespace mscclpp
