// The choices that make one all-reduce out of many: independent axes as plain enums in one structural value.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp {

/// How bytes travel and how the receiver knows that they have arrived.
enum class Protocol {
  LL8,           ///< 4-byte data, 4-byte flag
  LL16,          ///< two 4-byte data, each with its flag, in one 16-byte store
  LL128,         ///< 120 of 128 bytes are data; the warp's line store stays whole (GPU)
  LL128Ordered,  ///< the same lines, flag released after the data (any backend)
  Sentinel,      ///< poisoned slots, all bytes are data
  Simple         ///< plain stores, then a release on a step counter
};

/// Who reduces what.
enum class Pattern {
  OneShot,  ///< every rank sends its whole input to every other and reduces everything itself: one hop, (n-1) x the bytes
  TwoShot  ///< every rank reduces its slice and sends the result to every other: two hops, 2 (n-1)/n x the bytes
};

/// How the work is cut in time.
enum class Schedule {
  Whole,     ///< scratch holds the whole message; calls alternate between two halves of it
  Pipelined  ///< tiles travel through a ring of scratch slots; any message size
};

struct AllReduceConfig {
  Protocol protocol = Protocol::LL16;
  Pattern pattern = Pattern::OneShot;
  Schedule schedule = Schedule::Whole;
  int ranks =
      0;  ///< > 0: fixed at compile time, which unrolls all loops over peers; 0: any team size, decided at run time
  int lookahead = 2;  ///< Pipelined: how many tiles a rank may run ahead of what it has received
};

/// The type that moves packs under a protocol.
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
  using Type = LL128<LineStore::Whole>;
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
