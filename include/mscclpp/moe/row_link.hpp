// Where a rank writes what it sends to another: into the other's window or, over a transport with ports, into memory of
// its own from which a port channel takes it.
#pragma once

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_slots.hpp"

namespace mscclpp::moe {

/// The arguments of an exchange of rows over a transport with ports. `window` has a null pointer for each rank that
/// this one has not mapped: what is for it goes through its port.
template <int Ranks, class Transport>
struct PortRowArgs : CollectiveArgs<Ranks, RowSlots<Transport>> {
  typename Transport::Ports ports;
};

namespace links {
template <bool usesPorts>
struct RowArgsFor {
  template <int Ranks, class Transport>
  using Type = CollectiveArgs<Ranks, RowSlots<Transport>>;
};
template <>
struct RowArgsFor<true> {
  template <int Ranks, class Transport>
  using Type = PortRowArgs<Ranks, Transport>;
};
}  // namespace links

/// The arguments of an exchange of rows.
template <int Ranks, class Transport>
using RowArgs = typename links::RowArgsFor<Transport::usesPorts>::template Type<Ranks, Transport>;

/// What leads from this rank to the others. A place in a window is given by offsetOf(r), its offset for what comes from
/// rank r. The memory of the ports has the same layout, with what is for rank r where a window has what comes from it.
template <int Ranks, class Transport>
class RowLink {
 public:
  MSCCLPP_INLINE explicit RowLink(const RowArgs<Ranks, Transport>& args) : args_(args) {}

  /// Whether what is for a rank goes through a port.
  MSCCLPP_INLINE bool hasPort([[maybe_unused]] int to) const {
    if constexpr (Transport::usesPorts) {
      return args_.window.base[to] == nullptr;
    } else {
      return false;
    }
  }
  /// Where this rank writes what is for a rank.
  template <class OffsetOf>
  MSCCLPP_INLINE std::byte* at(int to, const OffsetOf& offsetOf) const {
    if constexpr (Transport::usesPorts) {
      if (hasPort(to)) return args_.ports.staging + offsetOf(to);
    }
    return args_.window.at(to, offsetOf(args_.team.rank()));
  }

  /// After at(), has the port take `bytes` bytes from there to the rank, if there is a port. One thread; releases what
  /// its group has written before a sync.
  template <class OffsetOf, WaitPolicy Wait>
  MSCCLPP_INLINE void put([[maybe_unused]] int to, [[maybe_unused]] const OffsetOf& offsetOf,
                          [[maybe_unused]] std::size_t bytes, [[maybe_unused]] Wait& wait) const {
    if constexpr (Transport::usesPorts) {
      if (bytes > 0 && hasPort(to)) Transport::put(args_.ports.channels[to], portPut(to, offsetOf, bytes), wait);
    }
  }
  /// Has the port take a row, which the lanes of a warp have written, and then its flag of 8 bytes. Called by all of
  /// them.
  template <class Warp, class RowOf, class FlagOf, WaitPolicy Wait>
  MSCCLPP_INLINE void putRow(const Warp& warp, int to, const RowOf& rowOf, std::size_t bytes, const FlagOf& flagOf,
                             Wait& wait) const {
    Transport::putRow(warp, args_.ports.channels[to], portPut(to, rowOf, bytes),
                      portPut(to, flagOf, sizeof(std::uint64_t)), wait);
  }

 private:
  template <class OffsetOf>
  MSCCLPP_INLINE auto portPut(int to, const OffsetOf& offsetOf, std::size_t bytes) const {
    return typename Transport::Put{offsetOf(args_.team.rank()), offsetOf(to), bytes};
  }

  const RowArgs<Ranks, Transport>& args_;
};

}  // namespace mscclpp::moe
