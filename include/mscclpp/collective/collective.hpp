// What a collective is: the concept, and the arguments that all collectives have.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// The arguments of a collective, passed by value: plain data for kernel parameters or __constant__ memory. All ranks
/// pass the same scratch layout and count. The host class CollectiveState fills it in.
template <int Ranks, class Scratch>
struct CollectiveArgs {
  Team<Ranks> team;
  Window<Ranks> window;  ///< scratch.windowBytes() bytes on every rank, each Scratch::initialByte before the first call
  EpochWords epochs;     ///< local; each word Scratch::firstEpoch before the first call
  Scratch scratch;       ///< the layout of the window
  std::size_t count;     ///< elements; of what, the collective says
  BoundedWait wait;
};

/// What all collectives have: a type with the arguments Args, the layout Scratch of its window, maxBlockThreads, the
/// largest number of threads per block, accepts(args, shape), whether a launch of that shape can run with the
/// arguments, and a static run(grid, args, source, sink), called by all threads of the grid. Models:
/// fusion/gemm/gemm_reduce.hpp.
///
/// collectiveKernel waits for the kernels that it depends on, then calls run(). A collective with
/// `static constexpr bool awaitsPrerequisites = true` does that itself: run() calls arch::waitForPrerequisites() before
/// its first access to memory, also where it returns early, and computes what needs no memory before it.
template <class C>
concept LaunchableCollective = requires(const typename C::Args& args, const typename C::Scratch& scratch,
                                        LaunchShape shape) {
  { C::maxBlockThreads } -> detail::ConvertibleTo<int>;
  { C::accepts(args, shape) } -> detail::SameAs<bool>;
  { scratch.windowBytes() } -> detail::SameAs<std::size_t>;
  { C::Scratch::initialByte } -> detail::ConvertibleTo<int>;
  { C::Scratch::firstEpoch } -> detail::ConvertibleTo<std::uint64_t>;
};

/// A collective whose scratch depends on a count alone: scratchFor(count, ranks), the scratch for up to `count`
/// elements. Models: collective/all_reduce.hpp.
template <class C>
concept Collective = LaunchableCollective<C> && requires {
  { C::scratchFor(std::size_t{}, int{}) } -> detail::SameAs<typename C::Scratch>;
};

}  // namespace mscclpp
