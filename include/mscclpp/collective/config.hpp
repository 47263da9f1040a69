// The configuration of an all-reduce: independent choices as enums in one structural value.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp {

/// How data is transferred and how the receiver detects its arrival.
enum class Protocol {
  LL8,           ///< 4-byte data, 4-byte flag
  LL16,          ///< 8-byte data, a 4-byte flag for each half, in one 16-byte store
  LL128,         ///< 120 of 128 bytes are data; relies on a warp's store of a line being atomic (GPU)
  LL128Ordered,  ///< the same lines, the flag released after the data (any backend)
  Sentinel,      ///< slots hold a sentinel value until data arrives; all bytes are data
  Simple         ///< plain stores, then a release on a step counter
};

/// Which rank reduces which part.
enum class Pattern {
  /// every rank sends its input to all others and reduces everything: one hop, (n-1) times the bytes sent
  OneShot,
  TwoShot  ///< every rank reduces a slice and sends the result to all others: two hops, 2 (n-1)/n times the bytes sent
};

/// How a message passes through the scratch.
enum class Schedule {
  Unpipelined,  ///< the scratch holds the whole message; calls alternate between its two halves
  Pipelined     ///< tiles pass through a ring of slots in the scratch; any message size
};

/// The choices of an all-reduce; a template parameter.
struct AllReduceConfig {
  Protocol protocol = Protocol::LL16;
  Pattern pattern = Pattern::OneShot;
  Schedule schedule = Schedule::Unpipelined;
  int ranks = 0;      ///< > 0: fixed at compile time, so that loops over peers are unrolled; 0: known at run time
  int lookahead = 2;  ///< Schedule::Pipelined: the number of steps that a rank may be ahead of its peers
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
