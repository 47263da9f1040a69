// The base of collectives with a part for each rank whose numbers of elements differ: their arguments, their scratch
// and the checks.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// A number of elements for each rank of a team.
template <int Ranks>
using PerRank = std::size_t[Ranks > 0 ? Ranks : maxTeamSize];

/// The arguments of a collective with one part for each rank. `count` is an upper bound of all counts, the same on all
/// ranks: it determines the slots and the number of steps, on which the two ends of each pair of blocks must agree. The
/// largest count is best: a greater bound makes a pipeline take steps without data.
template <int Ranks, class Scratch>
struct VariableCountsArgs : CollectiveArgs<Ranks, Scratch> {
  PerRank<Ranks> counts;   ///< [r]: elements of the part of rank r, the same on all ranks; may be 0
  PerRank<Ranks> offsets;  ///< [r]: its first element in this rank's concatenation of the parts
};

/// The base of a collective of elements T with one part for each rank. Parts may be empty, so that a result does not
/// depend on data from every rank: slots are reused by credits.
template <class T, CollectiveConfig config>
struct VariableCounts : EqualCounts<T, config.common(), SlotReuse::ByCredits> {
  using Base = EqualCounts<T, config.common(), SlotReuse::ByCredits>;
  using typename Base::Scratch;
  using Args = VariableCountsArgs<config.ranks, Scratch>;

  /// As in EqualCounts; and whether no part has more than args.count elements.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return areWithin(args.counts, args) && Base::accepts(args, shape);
  }

 protected:
  using Slices = VariableSlices<T, typename Base::Index>;
  using Message = WholeMessage<T, typename Base::Index>;

  /// Whether the count of every rank of the team is at most args.count.
  template <class CallArgs>
  static MSCCLPP_HOST_DEVICE bool areWithin(const std::size_t* counts, const CallArgs& args) {
    bool within = true;
    for (int r = 0; r < args.team.size(); ++r) within &= counts[r] <= args.count;
    return within;
  }
};

}  // namespace mscclpp
