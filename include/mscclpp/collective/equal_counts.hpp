// The bases of collectives in which every rank sends args.count elements to each rank that it sends to: their scratch
// and the checks of their arguments, without a root and with one.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/session.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The base of a collective of elements T with one array of slots and two stages that use it; there may be further
/// stages after those. reuse: the rule for slots (collective/slot_reuse.hpp).
template <class T, CollectiveConfig config, SlotReuse reuse>
struct EqualCounts : OverSession<T, config.common(), 1, 2, reuse> {
  using Base = OverSession<T, config.common(), 1, 2, reuse>;
  using typename Base::Args;
  using typename Base::Scratch;
  static constexpr CollectiveConfig configuration = config;

  /// The scratch for args.count up to `maxCount`. Protocol::Simple: for any count; shape gives the number of blocks,
  /// tile size and slots, of which there are more than shape.slots if lookahead and rule need more.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks, const PipelineShape& shape = {}) {
    return Base::makeScratch(packsOf(maxCount), ranks, shape);
  }
  /// Whether a launch of this shape can run with these arguments: args.count elements fit in the scratch, and a
  /// pipeline has the number of blocks that its scratch was made for. launch() checks it; a user's kernel that calls
  /// run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::fits(args, packsOf(args.count), shape);
  }

 private:
  static MSCCLPP_HOST_DEVICE std::size_t packsOf(std::size_t count) { return ceilDivide(count, packSize<T>); }
};

/// The arguments of a collective with a root: a rank of the team, the same on all ranks; it may change from call to
/// call.
template <int Ranks, class Scratch>
struct RootedArgs : CollectiveArgs<Ranks, Scratch> {
  int root;
};

/// The base of a collective with a root. Ranks that need no data from others may be ahead of them: slots are reused by
/// credits.
template <class T, CollectiveConfig config>
struct RootedCounts : EqualCounts<T, config.common(), SlotReuse::ByCredits> {
  using Base = EqualCounts<T, config.common(), SlotReuse::ByCredits>;
  using typename Base::Scratch;
  using Args = RootedArgs<config.ranks, Scratch>;

  /// As in EqualCounts; and whether the root is a rank of the team.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return args.root >= 0 && args.root < args.team.size() && Base::accepts(args, shape);
  }
};

}  // namespace mscclpp
