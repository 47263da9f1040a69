// Parts of a job that warps draw from a counter: who is done takes over from those that are not.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Calls body(part) for parts 0 to parts - 1, each in one of the `drawers` warps that make this call together, whichever is free first; within a warp parts
/// ascend. Called by all threads of each warp. For work that equal shares do not balance, such as copies whose links are shared; a draw takes about a
/// microsecond, which passes while the part before it is under way.
///
/// drawn: memory that all the warps share, 0 at first. A job draws a ticket for each part and one in vain for each warp, so the next job goes on counting where
/// it ended; jobs of other numbers of parts or warps need another counter, or 0 in it again. One job at a time.
template <WarpGroup Warp, class Body>
MSCCLPP_INLINE void forEachDrawnPart(const Warp& warp, std::uint64_t* drawn, std::uint32_t parts, std::uint32_t drawers,
                                     Body&& body) {
  const std::uint64_t tickets = std::uint64_t{parts} + drawers;
  const auto draw = [&] {
    return warp.rank() == 0 ? arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(drawn, std::uint64_t{1}) : 0;
  };
  const auto shown = [&](std::uint64_t ticket) {
    return warp.shuffle(static_cast<std::uint32_t>(ticket % tickets), 0);
  };
  for (std::uint32_t part = shown(draw()); part < parts;) {
    const std::uint64_t next = draw();  // early: the answer takes a while
    body(part);
    part = shown(next);
  }
}

}  // namespace mscclpp
