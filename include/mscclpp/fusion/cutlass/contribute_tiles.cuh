// A node of an epilogue visitor tree of CUTLASS that contributes tiles to a row exchange, straight from registers.
#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/pass.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/element_of.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/quad_exchange.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {

/// The callbacks of one tile of ContributeTiles, for the warps that hold it. Coordinates: the layout of the positions
/// of a thread's elements, relative to its first one. Slots: RowContribution::BlockSlots.
template <class Output, class Slots, class Coordinates>
class TileStores : public cutlass::epilogue::fusion::detail::EmptyConsumerStoreCallbacks {
 public:
  /// byte: where the slot has the first of the four lanes' columns in the row of this one's first element; rowsLeft and
  /// columnsLeft: of the problem, from there on. threads: those of all warps that hold the tile.
  CUTLASS_DEVICE TileStores(const Slots& slots, std::size_t byte, std::size_t rowBytes, int rowsLeft, int columnsLeft,
                            int threads)
      : slots_(slots),
        byte_(byte),
        rowBytes_(rowBytes),
        rowsLeft_(rowsLeft),
        columnsLeft_(columnsLeft),
        threads_(threads) {}

  /// Stores what the node's child has computed of a fragment, and returns it.
  template <class Accumulator, class Input, int count>
  CUTLASS_DEVICE cutlass::Array<Input, count> visit(const cutlass::Array<Accumulator, count>& /*accumulators*/,
                                                    int fragment, int epilogueRow, int epilogueColumn,
                                                    const cutlass::Array<Input, count>& input) {
    static_assert(
        isFromTensorCores<count>(),
        "the epilogue must visit accumulators as tensor cores leave them: 2 columns in 2 rows, in steps of 8");
    constexpr int words = count / 2, groups = count / 4;
    static_assert(groups % 2 == 0, "the tile of the epilogue must have a multiple of 16 columns");
    struct Words {
      std::uint32_t word[words];
    };
    using Convert = cutlass::NumericArrayConverter<Output, Input, count, cutlass::FloatRoundStyle::round_to_nearest>;
    const auto values = arch::bitCast<Words>(Convert{}(input));
    const gpu::WarpTile<> warp;
    const int lane = warp.rank() % 4;
    const int first = fragment * count + inSubtile * (epilogueRow + epilogueRows * epilogueColumn);
    MSCCLPP_UNROLL
    for (int set = 0; set < words / 4; ++set) {
      // Lane l of the four gets the piece of 8 columns at(l). With 32 columns in a fragment, one store of a warp fills
      // 64 bytes of each row.
      const auto at = [&](int l) {
        if constexpr (groups % 4 == 0) return Piece{set % 2, set / 2 * 4 + l};
        return Piece{l % 2, set * 2 + l / 2};
      };
      Vector<std::uint32_t, 4> row;
      MSCCLPP_UNROLL
      for (int l = 0; l < 4; ++l) row[l] = values.word[at(l).group * 2 + at(l).half];
      transposeInQuads(warp, row);
      const Piece piece = at(lane);
      const int rowOffset = rowOf(first) + 8 * piece.half, column = columnOf(first) + 8 * piece.group;
      if (rowOffset < rowsLeft_ && column < columnsLeft_) {
        slots_.store(
            byte_ + static_cast<std::size_t>(rowOffset) * rowBytes_ + static_cast<std::size_t>(column) * sizeof(Output),
            arch::bitCast<Word128>(row));
      }
    }
    return input;
  }
  /// The tile is stored: the warp that publishes it goes on.
  CUTLASS_DEVICE void end() { arch::namedBarrierArrive(consumerBarriers().specialized(0), threads_); }

 private:
  /// 8 columns of one row that the four lanes hold: the half of the 16 rows of a warp, and the number of the columns.
  struct Piece {
    int half;
    int group;
  };
  /// A thread's elements of a subtile of the epilogue, and the subtiles along the rows of a tile.
  static constexpr int inSubtile = cute::size(cute::take<0, 3>(cute::shape(Coordinates{})));
  static constexpr int epilogueRows = cute::size<3>(Coordinates{});

  static CUTLASS_DEVICE constexpr int rowOf(int element) {
    return static_cast<int>(cute::get<0>(Coordinates{}(element)));
  }
  static CUTLASS_DEVICE constexpr int columnOf(int element) {
    return static_cast<int>(cute::get<1>(Coordinates{}(element)));
  }
  template <int count>
  static CUTLASS_DEVICE constexpr bool isFromTensorCores() {
    for (int i = 0; i < inSubtile; ++i) {
      const int first = i / count * count, inFragment = i % count;
      if (rowOf(i) - rowOf(first) != inFragment / 2 % 2 * 8) return false;
      if (columnOf(i) - columnOf(first) != inFragment / 4 * 8 + inFragment % 2) return false;
    }
    return inSubtile % count == 0;
  }

  const Slots slots_;
  const std::size_t byte_;
  const std::size_t rowBytes_;
  const int rowsLeft_;
  const int columnsLeft_;
  const int threads_;
};

}  // namespace detail

/// The root of an epilogue visitor tree of Sm90, Sm90EVT<ContributeTiles<...>, Child>: stores what Child has computed,
/// rounded to Output, into the slots of a row exchange, at the rank that reduces the tile's rows (with
/// RowDelivery::Redundant, at every rank). Each lane stores 16 bytes at a time; no shared memory, no TMA.
///
/// Build the epilogue with ElementD = void, for a kernel with one of the schedules KernelTmaWarpSpecializedPingpong or
/// -Cooperative, and make the kernel an EvtRowExchange, which reduces what the node has stored. The node may also be
/// elsewhere in a tree whose root is stored to D: visit() returns its input. What every rank adds, such as C, is added
/// once for each rank. Output: cutlass::bfloat16_t or cutlass::half_t. Result: what becomes of the reduced rows
/// (fusion/gemm/row_result.hpp).
///
/// The warp that loads C in other epilogues publishes each tile, when the warps that hold it have stored it: a release
/// takes as long as the link, and no other warp waits for it.
template <class Output, int Ranks, RowDelivery delivery,
          class Result = StoreRows<typename detail::ElementOf<Output>::Type>>
class ContributeTiles {
 public:
  using Element = typename detail::ElementOf<Output>::Type;
  using Scratch = RowScratch<Element, delivery>;
  using ElementAux = Output;  // CUTLASS's builders derive the epilogue's layouts from it if ElementD is void
  static_assert(sizeof(Output) == 2, "the elements that are contributed must have 16 bits");
  static_assert(Ranks > 0, "fix the number of ranks");

  struct SharedStorage {};
  struct Arguments {
    CollectiveArgs<Ranks, Scratch> exchange{};  ///< count: the rows of the problem; scratch: the kernel's scratchFor()
    Result result{};
  };
  using Params = Arguments;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(const ProblemShape& /*problem*/, const Arguments& arguments,
                                                  void* /*workspace*/) {
    return arguments;
  }
  /// Whether the scratch fits the problem depends on the tile: the kernel says it.
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& /*problem*/, const Arguments& /*arguments*/) {
    return true;
  }
  template <class ProblemShape>
  static std::size_t get_workspace_size(const ProblemShape& /*problem*/, const Arguments& /*arguments*/) {
    return 0;
  }
  template <class ProblemShape>
  static cutlass::Status initialize_workspace(const ProblemShape& /*problem*/, const Arguments& /*arguments*/,
                                              void* /*workspace*/, cudaStream_t /*stream*/,
                                              cutlass::CudaHostAdapter* /*adapter*/ = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE ContributeTiles() {}
  CUTLASS_HOST_DEVICE ContributeTiles(const Params& params, const SharedStorage& /*shared*/) : params_(&params) {
    if constexpr (arch::devicePass) {
      epoch_ = params.exchange.epochs.current(detail::consumerGrid());
      hasStopped_ = params.exchange.epochs.hasStopped(epoch_);
    }
  }

  /// There is nothing to load; the warp publishes.
  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }

  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      const cutlass::epilogue::fusion::detail::ProducerLoadArgs<Args...>& args) {
    using Tiles = TilesOf<decltype(args.tile_shape_mnk)>;
    const auto tile = static_cast<std::uint32_t>(cute::get<0>(args.tile_coord_mnkl));
    return Publication{contribution(), Tiles::blocksOf(params_->exchange.count).blockOf(tile), contributes<Tiles>(args),
                       threadsOf(args)};
  }
  template <bool ReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Args...>& args) {
    using Tiles = TilesOf<decltype(args.tile_shape_mnk)>;
    using Coordinates = cute::remove_cvref_t<decltype(args.tCcD.layout())>;
    const auto tile = static_cast<std::uint32_t>(cute::get<0>(args.tile_coord_mnkl));
    const auto slots = contribution().slots(Tiles::blocksOf(params_->exchange.count).blockOf(tile));
    const auto columns = static_cast<int>(cute::get<1>(args.problem_shape_mnkl));
    const auto rowsLeft = static_cast<int>(cute::get<0>(args.residue_tCcD));
    // From the first of the 8 columns that four lanes hold.
    const int columnsLeft = static_cast<int>(cute::get<1>(args.residue_tCcD)) + gpu::WarpTile<>().rank() % 4 * 2;
    const int row =
        static_cast<int>(cute::get<0>(args.problem_shape_mnkl)) - rowsLeft - static_cast<int>(tile) * Tiles::tileRows;
    const std::size_t rowBytes = static_cast<std::size_t>(columns) * sizeof(Output);
    const std::size_t byte =
        static_cast<std::size_t>(row) * rowBytes + static_cast<std::size_t>(columns - columnsLeft) * sizeof(Output);
    return detail::TileStores<Output, cute::remove_cvref_t<decltype(slots)>, Coordinates>(
        slots, byte, rowBytes, contributes<Tiles>(args) ? rowsLeft : 0, columnsLeft, threadsOf(args));
  }

 private:
  /// The callbacks of one tile for the warp that publishes it. That it has published a tile is known to the warps that
  /// hold the next one by the pipeline of loads, which it fills after that: one barrier serves all tiles.
  class Publication : public cutlass::epilogue::fusion::detail::EmptyProducerLoadCallbacks {
   public:
    CUTLASS_DEVICE Publication(const RowContribution<Ranks, Scratch>& contribution, std::size_t block, bool contributes,
                               int threads)
        : contribution_(contribution), block_(block), contributes_(contributes), threads_(threads) {}
    CUTLASS_DEVICE void end() {
      arch::namedBarrierSync(detail::consumerBarriers().specialized(0), threads_);
      if (contributes_) contribution_.publish(gpu::WarpTile<>{}, block_);
    }

   private:
    const RowContribution<Ranks, Scratch> contribution_;
    const std::size_t block_;
    const bool contributes_;
    const int threads_;
  };

  template <class TileShape>
  using TilesOf = ExchangeTiles<Ranks, Scratch, cute::size<0>(cute::remove_cvref_t<TileShape>{}),
                                cute::size<1>(cute::remove_cvref_t<TileShape>{})>;

  CUTLASS_DEVICE RowContribution<Ranks, Scratch> contribution() const {
    return {params_->exchange, epoch_, hasStopped_};
  }
  template <class Tiles, class Args>
  CUTLASS_DEVICE bool contributes(const Args& args) const {
    return !hasStopped_ && Tiles::contain({cute::get<0>(args.tile_coord_mnkl), cute::get<1>(args.tile_coord_mnkl)},
                                          params_->exchange.count, cute::get<1>(args.problem_shape_mnkl));
  }
  /// Those that store a tile, and the warp that publishes it.
  template <class Args>
  static CUTLASS_DEVICE int threadsOf(const Args& args) {
    return static_cast<int>(cute::size(args.tiled_mma)) + gpu::WarpTile<>::width;
  }

  const Params* params_ = nullptr;
  std::uint64_t epoch_ = 0;
  bool hasStopped_ = true;
};

}  // namespace mscclpp
