// A traced collective: the same collective on a grid with a trace.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The arguments of a collective, and the buffer to record into.
template <class Args>
struct TracedArgs {
  Args collective;
  TraceBuffer trace;
};

/// Runs the collective C and records it; for the generic kernel. A user's kernel, which may record its own events,
/// constructs a BlockTrace and passes TracedGrid(grid, trace) to the collective instead.
template <class C>
struct Traced {
  using Args = TracedArgs<typename C::Args>;
  static constexpr int maxBlockThreads = C::maxBlockThreads;

  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return C::accepts(args.collective, shape);
  }
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& args, LaunchShape shape) requires requires {
    C::sharedBytes(args.collective, shape);
  }
  { return C::sharedBytes(args.collective, shape); }

  template <Grid GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    BlockTrace trace(args.trace, grid);
    return C::run(TracedGrid(grid, trace), args.collective, source, sink);
  }
};

}  // namespace mscclpp
