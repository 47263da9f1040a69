// The order in which the tiles of a matrix product are computed.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Which tile: the position of its block of rows in the caller's order of blocks, and its part of the columns.
struct TilePlace {
  std::size_t block;
  std::size_t part;
};

/// Tiles of `blocks` blocks of rows by `parts` parts of columns. They are numbered through groups of `group` blocks,
/// and in a group part by part: tiles that are computed at the same time share the rows of `group` blocks and a few
/// parts of the weights, which stay in the L2 cache, while the blocks themselves are completed in the caller's order,
/// up to the group.
///
/// Another type with this function may take its place.
struct GroupedTiles {
  std::size_t blocks;
  std::size_t parts;
  std::size_t group;  ///< at least 1

  MSCCLPP_INLINE std::size_t count() const { return blocks * parts; }
  /// Tile i, i < count().
  MSCCLPP_INLINE TilePlace operator()(std::size_t i) const {
    const std::size_t first = i / (group * parts) * group;
    const std::size_t inGroup = blocks - first < group ? blocks - first : group;
    const std::size_t rest = i - first * parts;
    return {first + rest % inGroup, rest / inGroup};
  }
};

}  // namespace mscclpp
