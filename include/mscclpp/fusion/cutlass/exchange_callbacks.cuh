// Epilogue callbacks of CUTLASS for tiles that are stored elsewhere than they are in the problem, and to which the
// contributions of other ranks are added in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>
#include <utility>

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/quad_exchange.hpp"

namespace mscclpp {

/// What the callbacks are told of a tile. It takes the place of the tile's coordinate along K, of which an epilogue has
/// no use.
struct ExchangedTile {
  int row = 0;     ///< of tiles, in the problem
  int column = 0;  ///< the same
  /// What rank 0 contributes to it, row after row without gaps.
  const std::byte* contributions = nullptr;
  std::size_t perRank = 0;  ///< bytes from rank to rank
  int rank = 0;             ///< this one, whose contribution is the tile
};

namespace detail {

/// The callbacks of one tile, to whose values those of the other ranks are added: each rank's value is rounded to T,
/// they are added in rank order in fp32, and the sum is rounded once, when it is stored.
///
/// The first other rank's are the source of the epilogue (Source: the registers of a thread for a subtile of it), which
/// a warp of its own has loaded while the tile was multiplied. Those of further ranks are loaded here. A thread holds
/// pairs of neighbouring columns, and four lanes those of 32 columns in each row: each of the four loads 16 bytes of
/// them, a fourth of the loads of single pairs, and they exchange the pairs before they are added. Loads of `depth`
/// subtiles are in flight while the ones before are stored.
template <class Callbacks, class T, int Ranks, int tileColumns, class Coordinates, class Source>
struct SummingCallbacks : Callbacks {
  static constexpr int loadedPeers = Ranks - 2;  ///< ranks whose contributions are loaded here
  static constexpr int elements = cute::size<0>(Coordinates{}) * cute::size<1>(Coordinates{}) *
                                  cute::size<2>(Coordinates{});  ///< of a thread in a subtile
  static constexpr int subtileRows = cute::size<3>(Coordinates{});
  static constexpr int subtiles = subtileRows * cute::size<4>(Coordinates{});
  static constexpr int pairs = elements / 2;
  static constexpr int quads = pairs / 4;  ///< loads of 16 bytes
  static constexpr std::size_t pitch = tileColumns * sizeof(T);
  static constexpr int mostWords = 32;  ///< registers of a thread for contributions
  static constexpr int wanted = loadedPeers > 0 ? mostWords / (pairs * loadedPeers) : 1;
  static constexpr int depth = wanted < 1 ? 1 : wanted < subtiles ? wanted : subtiles;
  static_assert(sizeof(T) == 2 && pairs % 8 == 0, "elements of 16 bits, and subtiles of a multiple of 32 columns");
  static_assert(sizeof(typename Source::value_type) == sizeof(T), "the source must be in registers as it is in memory");

  /// The order of a thread's pairs: those of 32 columns in two rows, 8 rows apart, two columns of both rows in turn.
  /// The first pair of a load, and for each pair its load and its place in it.
  static constexpr int firstPairOf(int quad) { return quad / 2 * 8 + quad % 2; }
  static constexpr int quadOf(int pair) { return pair / 8 * 2 + pair % 2; }
  static constexpr int wordOf(int pair) { return pair % 8 / 4 * 2 + pair / 2 % 2; }

  template <int... pair>
  static constexpr bool isOrder(std::integer_sequence<int, pair...>) {
    const auto isAt = [](const auto& element, int of) {
      return int{cute::get<0>(element)} == quadOf(of) % 2 * 8 &&
             int{cute::get<1>(element)} == quadOf(of) / 2 * 32 + wordOf(of) * 8;
    };
    return (isAt(typename Coordinates::layout_type{}(cute::Int<2 * pair>{}), pair) && ...);
  }
  static_assert(isOrder(std::make_integer_sequence<int, pairs>{}), "a tiled copy of another order");

  /// isSum: whether the contributions of the other ranks are added; row, column: of the thread's first element, in the
  /// tile.
  CUTLASS_DEVICE SummingCallbacks(Callbacks&& callbacks, const ExchangedTile& tile, bool isSum,
                                  const Coordinates& coordinates, const Source& source, int row, int column)
      : Callbacks(cute::forward<Callbacks>(callbacks)),
        tile_(tile),
        isSum_(isSum),
        coordinates_(coordinates),
        source_(source),
        // Four lanes hold columns c, c + 2, c + 4 and c + 6 first, and load 8 columns each.
        first_(tile.contributions + static_cast<std::size_t>(row) * pitch +
               static_cast<std::size_t>(column + gpu::WarpTile<>().rank() % 4 * 6) * sizeof(T)) {}

  CUTLASS_DEVICE void begin() {
    Callbacks::begin();
    if constexpr (loadedPeers > 0) {
      if (!isSum_) return;
      MSCCLPP_UNROLL
      for (int subtile = 0; subtile < depth; ++subtile) load(subtile);
    }
  }
  template <class Accumulator, int N>
  CUTLASS_DEVICE auto visit(const cutlass::Array<Accumulator, N>& accumulators, int part, int subtileRow,
                            int subtileColumn) {
    static_assert(N % 2 == 0 && elements % N == 0);
    auto values = Callbacks::visit(accumulators, part, subtileRow, subtileColumn);
    if (!isSum_) return values;
    using Value = typename decltype(values)::Element;
    const int slot = (subtileColumn * subtileRows + subtileRow) % depth;
    if constexpr (loadedPeers > 0) {
      if (part == 0) exchange(slot);
    }
    const auto source = cute::recast<std::uint32_t>(source_);
    MSCCLPP_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const Vector<T, 2> rounded{narrow<T>(static_cast<float>(values[2 * i])),
                                 narrow<T>(static_cast<float>(values[2 * i + 1]))};
      const auto own = arch::bitCast<std::uint32_t>(rounded);
      const int pair = part * (N / 2) + i;
      const auto from = [&](int peer) {
        return peer == 0 ? source(pair) : words_[slot][peer - 1][quadOf(pair)][wordOf(pair)];
      };
      float sums[2] = {};
      MSCCLPP_UNROLL
      for (int rank = 0; rank < Ranks; ++rank) {
        std::uint32_t word = own;
        if (rank < Ranks - 1 && rank < tile_.rank) word = from(rank < Ranks - 1 ? rank : 0);
        if (rank > 0 && rank > tile_.rank) word = from(rank > 0 ? rank - 1 : 0);
        const auto term = arch::bitCast<Vector<T, 2>>(word);
        MSCCLPP_UNROLL
        for (int k = 0; k < 2; ++k) sums[k] = rank == 0 ? widen<T>(term[k]) : sums[k] + widen<T>(term[k]);
      }
      MSCCLPP_UNROLL
      for (int k = 0; k < 2; ++k) values[2 * i + k] = Value(sums[k]);
    }
    return values;
  }
  CUTLASS_DEVICE void end_loop(int subtileRow, int subtileColumn) {
    Callbacks::end_loop(subtileRow, subtileColumn);
    if constexpr (loadedPeers > 0) {
      const int next = subtileColumn * subtileRows + subtileRow + depth;
      if (isSum_ && next < subtiles) load(next);
    }
  }

 private:
  /// Tiles have memory for all their rows and columns, also beyond the edges of the problem.
  CUTLASS_DEVICE void load(int subtile) {
    const auto at = coordinates_(cute::_, cute::_, cute::_, subtile % subtileRows, subtile / subtileRows);
    MSCCLPP_UNROLL
    for (int quad = 0; quad < quads; ++quad) {
      const auto element = at(2 * firstPairOf(quad));
      const std::byte* const from = first_ + static_cast<std::size_t>(cute::get<0>(element)) * pitch +
                                    static_cast<std::size_t>(cute::get<1>(element)) * sizeof(T);
      MSCCLPP_UNROLL
      for (int peer = 1; peer < Ranks - 1; ++peer) {
        const int rank = peer < tile_.rank ? peer : peer + 1;
        words_[subtile % depth][peer - 1][quad] = arch::bitCast<Vector<std::uint32_t, 4>>(
            arch::loadWide(from + static_cast<std::size_t>(rank) * tile_.perRank));
      }
    }
  }
  CUTLASS_DEVICE void exchange(int slot) {
    MSCCLPP_UNROLL
    for (int peer = 0; peer < loadedPeers; ++peer) {
      MSCCLPP_UNROLL
      for (int quad = 0; quad < quads; ++quad) transposeInQuads(gpu::WarpTile<>{}, words_[slot][peer][quad]);
    }
  }

  const ExchangedTile tile_;
  const bool isSum_;
  const Coordinates coordinates_;
  const Source& source_;
  const std::byte* const first_;
  Vector<std::uint32_t, 4> words_[depth][loadedPeers > 0 ? loadedPeers : 1][quads];
};

}  // namespace detail

/// The callbacks Fusion in an epilogue whose coordinates are not those of the problem: Fusion gets these, so that what
/// depends on a row or a column (scales, a bias, an edge) is right. The coordinate along K of the epilogue is an
/// ExchangedTile, whose contributions, of elements T, are added. The source of the epilogue is that of the first other
/// rank. Tiles that are not a sum have none, but go through the same steps: the stages of a pipeline are counted.
/// Queue: what the warps of the epilogue share with others.
template <class Fusion, class T, int Ranks, class Queue>
struct ExchangeCallbacks : Fusion {
  struct SharedStorage {
    typename Fusion::SharedStorage fusion;
    Queue queue;
  };
  using Arguments = typename Fusion::Arguments;

  struct Params {
    typename Fusion::Params fusion;
    int rows, columns;  ///< of the problem
    bool hasSource;     ///< whether the tiles of an epilogue with these parameters are sums
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    return {Fusion::to_underlying_arguments(problem, arguments, workspace), static_cast<int>(cute::get<0>(problem)),
            static_cast<int>(cute::get<1>(problem)), false};
  }

  CUTLASS_HOST_DEVICE ExchangeCallbacks() {}
  CUTLASS_HOST_DEVICE ExchangeCallbacks(const Params& params, const SharedStorage& shared)
      : Fusion(params.fusion, shared.fusion),
        rows_(params.rows),
        columns_(params.columns),
        hasSource_(params.hasSource) {}

  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return hasSource_; }

  template <bool ReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Args...>& stored) {
    using TileShape = cute::remove_cvref_t<decltype(stored.tile_shape_mnk)>;
    constexpr int tileRows = cute::size<0>(TileShape{}), tileColumns = cute::size<1>(TileShape{});
    const ExchangedTile tile = cute::get<2>(stored.tile_coord_mnkl);
    // What is left of the problem from the tile's first element on, and of the memory in which it is stored.
    const int rowsLeft = rows_ - tile.row * tileRows, columnsLeft = columns_ - tile.column * tileColumns;
    const int moreRows =
        rowsLeft - (cute::get<0>(stored.problem_shape_mnkl) - cute::get<0>(stored.tile_coord_mnkl) * tileRows);
    const int moreColumns =
        columnsLeft - (cute::get<1>(stored.problem_shape_mnkl) - cute::get<1>(stored.tile_coord_mnkl) * tileColumns);
    auto problem = stored.problem_shape_mnkl;
    cute::get<0>(problem) = rows_;
    cute::get<1>(problem) = columns_;
    cute::get<3>(problem) = 1;
    auto residue = stored.residue_cD;
    cute::get<0>(residue) += moreRows;
    cute::get<1>(residue) += moreColumns;
    auto ofThread = stored.residue_tCcD;
    cute::get<0>(ofThread) += moreRows;
    cute::get<1>(ofThread) += moreColumns;
    const cutlass::epilogue::fusion::detail::ConsumerStoreArgs args(
        problem, stored.tile_shape_mnk, cute::make_coord(tile.row, tile.column, cute::_, 0), stored.tiled_mma,
        stored.epi_tile, stored.tiled_copy, stored.cD, residue, stored.tCcD, ofThread, stored.tCrC, stored.thread_idx);
    auto callbacks = Fusion::template get_consumer_store_callbacks<ReferenceSource>(args);
    using Coordinates = cute::remove_cvref_t<decltype(stored.tCcD)>;
    using Source = cute::remove_cvref_t<decltype(stored.tCrC)>;
    return detail::SummingCallbacks<decltype(callbacks), T, Ranks, tileColumns, Coordinates, Source>(
        cute::move(callbacks), tile, hasSource_, stored.tCcD, stored.tCrC, rowsLeft - cute::get<0>(ofThread),
        columnsLeft - cute::get<1>(ofThread));
  }

 private:
  int rows_ = 0;
  int columns_ = 0;
  bool hasSource_ = false;
};

}  // namespace mscclpp
