// The configuration of a collective: independent choices as enums in one structural value.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp {

/// How data is transferred and how the receiver detects its arrival. Simple runs over a tile pipeline and Bulk over a
/// bulk session, for messages of any size; the others run over a packet session, whose scratch holds the longest
/// message.
enum class Protocol {
  LL8,           ///< 4-byte data, 4-byte flag
  LL16,          ///< 8-byte data, a 4-byte flag for each half, in one 16-byte store
  LL128,         ///< 120 of 128 bytes are data; relies on a warp's store of a line being atomic (GPU)
  LL128Ordered,  ///< the same lines, the flag released after the data (any backend)
  Sentinel,      ///< slots hold a sentinel value until data arrives; all bytes are data
  Simple,        ///< plain stores, then a release on a step counter
  Bulk           ///< bulk copies between arrays and Link::Outputs, then a release on a counter (GPU: sm_90 and newer)
};

/// Whether a protocol runs over a tile pipeline.
MSCCLPP_HOST_DEVICE constexpr bool isPipelined(Protocol protocol) {
  return protocol == Protocol::Simple;
}
/// Whether a protocol takes messages of any size, whatever its scratch.
MSCCLPP_HOST_DEVICE constexpr bool takesAnySize(Protocol protocol) {
  return isPipelined(protocol) || protocol == Protocol::Bulk;
}

/// Where a rank stores what its peers get in the end.
enum class Link {
  Slots,   ///< in slots of their scratch, from which they copy it
  Outputs  ///< in their outputs, which they have registered; Protocol::Simple and Protocol::Bulk
};

/// The choices that every collective has; a template parameter.
struct CollectiveConfig {
  Protocol protocol = Protocol::LL16;
  int ranks = 0;            ///< > 0: fixed at compile time, so that loops over peers are unrolled; 0: known at run time
  int lookahead = 2;        ///< Protocol::Simple: the number of steps that a rank may be ahead of its peers
  Link link = Link::Slots;  ///< Link::Outputs: of AllReduce, AllGather, AllToAll and Broadcast

  /// As of the configurations of particular collectives. A base class gets config.common() rather than config: nvcc 13
  /// does not name a base whose argument is a parameter of class type itself in the code for the host compiler.
  MSCCLPP_HOST_DEVICE constexpr CollectiveConfig common() const { return *this; }
};

/// Which rank reduces which part.
enum class Pattern {
  /// every rank sends its input to all others and reduces everything: one hop, (n-1) times the bytes sent
  OneShot,
  TwoShot  ///< every rank reduces a slice and sends the result to all others: two hops, 2 (n-1)/n times the bytes sent
};

/// The choices of an all-reduce.
struct AllReduceConfig {
  Protocol protocol = Protocol::LL16;
  Pattern pattern = Pattern::OneShot;
  int ranks = 0;            ///< as in CollectiveConfig
  int lookahead = 2;        ///< as in CollectiveConfig
  Link link = Link::Slots;  ///< as in CollectiveConfig: of the second hop

  MSCCLPP_HOST_DEVICE constexpr CollectiveConfig common() const { return {protocol, ranks, lookahead, link}; }
};

/// The PackProtocol of a protocol.
template <Protocol protocol>
struct PackProtocolOf;
template <>
struct PackProtocolOf<Protocol::LL8> {
  using Type = PacketRows<LL8Packet>;
};
template <>
struct PackProtocolOf<Protocol::LL16> {
  using Type = PacketRows<LL16Packet>;
};
template <>
struct PackProtocolOf<Protocol::LL128> {
  using Type = LL128<LineStore::Atomic>;
};
template <>
struct PackProtocolOf<Protocol::LL128Ordered> {
  using Type = LL128<LineStore::Ordered>;
};
template <>
struct PackProtocolOf<Protocol::Sentinel> {
  using Type = Sentinel;
};

}  // namespace mscclpp
