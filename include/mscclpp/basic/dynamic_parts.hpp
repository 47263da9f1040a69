// Dynamic scheduling: warps take the parts of a job from an atomic work counter.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

/// The loop of forEachDynamicPart(). partOf(ticket): the part, or `parts` or more beyond the last.
template <WarpGroup Warp, class PartOf, class Body>
MSCCLPP_INLINE void takeParts(const Warp& warp, std::uint64_t* counter, std::uint32_t parts, const PartOf& partOf,
                              Body&& body) {
  const auto takeTicket = [&] {
    return warp.rank() == 0 ? arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(counter, std::uint64_t{1}) : 0;
  };
  for (std::uint32_t part = warp.shuffle(partOf(takeTicket()), 0); part < parts;) {
    const std::uint64_t next = takeTicket();  // early, to overlap its latency with body
    body(part);
    part = warp.shuffle(partOf(next), 0);
  }
}

}  // namespace detail

/// Calls body(part) once for each part in [0, parts), in whichever of the `warps` warps is free first; each warp gets
/// its parts in ascending order. Called by all threads of all the warps. For work that a static partition does not
/// balance, such as copies over shared links. An increment of the counter takes about a microsecond, which overlaps
/// with the previous part.
///
/// counter: device memory that all the warps share, zero-initialised. A job takes a ticket per part and one more per
/// warp (beyond the last part), so the next job continues from the counter's value. A job with other `parts` or `warps`
/// needs another counter, or a reset to 0. One job at a time.
template <WarpGroup Warp, class Body>
MSCCLPP_INLINE void forEachDynamicPart(const Warp& warp, std::uint64_t* counter, std::uint32_t parts,
                                       std::uint32_t warps, Body&& body) {
  const std::uint64_t tickets = std::uint64_t{parts} + warps;
  const auto partOf = [=](std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket % tickets); };
  detail::takeParts(warp, counter, parts, partOf, body);
}

/// The same for a counter that has the value `first` when the job begins: jobs may differ in `parts` and `warps` if
/// each caller knows how many tickets the jobs before took. This one ends at first + parts + warps.
template <WarpGroup Warp, class Body>
MSCCLPP_INLINE void forEachDynamicPartFrom(const Warp& warp, std::uint64_t* counter, std::uint64_t first,
                                           std::uint32_t parts, Body&& body) {
  const auto partOf = [=](std::uint64_t ticket) {
    const std::uint64_t part = ticket - first;
    return part < parts ? static_cast<std::uint32_t>(part) : parts;
  };
  detail::takeParts(warp, counter, parts, partOf, body);
}

}  // namespace mscclpp
