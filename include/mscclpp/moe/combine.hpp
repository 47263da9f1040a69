// Combine: the weighted sum of the experts' results of each token, back on the token's rank.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/combine_call.hpp"
#include "mscclpp/moe/combine_receiver.hpp"
#include "mscclpp/moe/combine_sender.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_transport.hpp"

namespace mscclpp::moe {

/// The results of this rank's experts: a source of Combine. Another type with this function may take its place.
template <class T>
struct ExpertResults {
  const T* rows;           ///< [capacity][packs * packSize<T>], 16-byte aligned; rows as the dispatch placed them
  std::uint32_t rowPacks;  ///< packs of a row

  /// Pack `index` of a row. One thread; it may be called several times.
  MSCCLPP_INLINE Pack<T> operator()(std::uint32_t row, std::uint32_t index) const {
    return fromWord<T>(arch::loadWide(reinterpret_cast<const std::byte*>(rows) +
                                      (std::size_t{row} * rowPacks + index) * sizeof(Word128)));
  }
};

/// Where the tokens' results are stored: a sink of Combine.
template <class T>
struct TokenRows {
  T* rows;                 ///< [tokens][packs * packSize<T>], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of a row

  MSCCLPP_INLINE void operator()(std::uint32_t token, std::uint32_t index, const Pack<T>& pack) const {
    arch::storeWide(reinterpret_cast<std::byte*>(rows) + (std::size_t{token} * rowPacks + index) * sizeof(Word128),
                    toWord<T>(pack));
  }
};

/// Each token's sum, over its choices, of weight * result of the expert, as elements T (bf16, f16). The rank of the
/// experts adds its part in fp32, in the order of the token's choices, and rounds it to T, in which it travels once;
/// the token's rank adds the parts in fp32, in rank order from 0, and rounds the sum to T. So the result is bitwise the
/// same in every run, and its error is at most that of one rounding to T for each rank's part and one of the sum,
/// plus the rounding of fp32. A token without choices gets zeros.
///
/// run() is called by every thread of every block of `grid`, on every rank, as Dispatch::run(), with the handle of the
/// dispatch; in between, the experts' results are computed. They are read with Phase::Send and, over a StoreTransport,
/// with Phase::Receive too. source(row, pack) gives a pack of an expert's result, sink(token, pack, values) gets one of
/// a token's, once each.
template <class T, class RowTransport, int Ranks = 0>
struct Combine {
  static_assert(sizeof(T) == 2, "results are bf16 or f16");
  using Element = T;
  using Transport = RowTransport;
  using Scratch = RowSlots<Transport>;
  using Args = CombineArgs<Ranks, Transport>;
  /// With flags a thread needs 168 registers, for what it sums and for loads that are in flight meanwhile.
  static constexpr int maxBlockThreads = Transport::hasRowFlags ? 384 : 512;

  /// The scratch for rows of `rowPacks` packs.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(const Dimensions& dimensions, std::uint32_t rowPacks) {
    Scratch scratch{.maxRows = dimensions.maxTokens,
                    .rowPacks = rowPacks,
                    .extraPacks = 0,
                    .countWords = 0,
                    .flagsPerRow = 1,
                    .ranks = dimensions.ranks};
    // Through a port each piece would be two requests to the proxy.
    if constexpr (!Transport::usesPorts) scratch.flagsPerRow = scratch.steps();
    return scratch;
  }
  /// Shared memory of a block, where a grid has it.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& /*args*/, LaunchShape /*shape*/) {
    return CombineMemory<Transport>::sharedBytes();
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && args.dimensions.isValid() && args.scratch.isValid() &&
           args.dimensions.ranks == args.team.size() && args.count <= args.dimensions.maxTokens &&
           args.sendingBlocks >= 0;
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>, "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread");
    if constexpr (checked) {
      if (!checkArguments<Combine>(grid, args)) return false;
    }
    auto wait = args.wait;
    using Call = CombineCall<T, Transport, Ranks, GridType, Source, Sink>;
    typename Call::Session session(grid, args, wait);
    const typename Call::Experts experts(session.warp(), args.dimensions, args.handle, args.scratch.rowPacks, source);
    Call call{grid, args, experts, sink, session, wait};
    return run(call);
  }

 private:
  template <class Call>
  static MSCCLPP_INLINE bool run(Call& call) {
    const Args& args = call.args;
    auto& session = call.session;
    const std::uint64_t stamp = *args.handle.stamp;
    if (session.hasStopped() || args.dispatches.hasStopped(EpochWords::stopped - 1)) return false;
    const bool sends = args.phase != Phase::Receive;
    const bool receives = args.phase != Phase::Send;
    const auto end = [&] {
      if (!receives) {
        if constexpr (Call::sharesMemory) call.grid.block().sync();  // the publisher has read what others may write now
        return session.suspend();
      }
      return session.finish([&](int from) { return rowsFrom(args, from); });
    };
    if (stamp != args.handle.stampOf(args.count)) {
      if (call.grid.block().rank() == 0) failForHandle(call, stamp);
      return end();
    }
    if (sends) session.enter();
    if constexpr (Transport::hasRowFlags) {
      call.clearBlockWords();
      if (!session.awaitEntries()) return end();
    }
    const auto share = session.share(args.phase, call.grid.warpCount(), args.sendingBlocks);
    if (share.sends) parts::send(call, share);
    if constexpr (!Transport::hasRowFlags) {
      if (receives && !session.awaitEntries()) return end();
    }
    if (share.receives) parts::receive(call, share);
    return end();
  }

  template <class Call>
  static MSCCLPP_INLINE void failForHandle(Call& call, std::uint64_t stamp) {
    const Args& args = call.args;
    const WaitSite site{WaitOperation::Call, args.team.rank(), -1, static_cast<std::uint32_t>(call.grid.blockIndex()),
                        args.handle.stampOf(args.count)};
    call.wait.fail(site, WaitOutcome::OtherHandle, stamp);
  }
  static MSCCLPP_INLINE std::uint32_t rowsFrom(const Args& args, int from) {
    std::uint32_t rows = 0;
    for (std::uint32_t token = 0; token < args.count; ++token) {
      rows += args.handle.indexAt(args.dimensions, token, from) >= 0 ? 1 : 0;
    }
    return rows;
  }
};

}  // namespace mscclpp::moe
