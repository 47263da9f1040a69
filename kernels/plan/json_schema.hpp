// The names of the reference's plans, for reading and writing them.
#pragma once

#include <array>
#include <string_view>

#include "mscclpp/plan/operation.hpp"

namespace mscclpp::plan {

struct CollectiveName {
  const char* name;
  CollectiveKind kind;
};
/// The first name of a kind is the one that is written.
inline constexpr std::array collectiveNames{CollectiveName{"allreduce", CollectiveKind::AllReduce},
                                            CollectiveName{"allgather", CollectiveKind::AllGather},
                                            CollectiveName{"reducescatter", CollectiveKind::ReduceScatter},
                                            CollectiveName{"reduce_scatter", CollectiveKind::ReduceScatter},
                                            CollectiveName{"alltoall", CollectiveKind::AllToAll},
                                            CollectiveName{"broadcast", CollectiveKind::Broadcast},
                                            CollectiveName{"reduce", CollectiveKind::Reduce},
                                            CollectiveName{"gather", CollectiveKind::Gather},
                                            CollectiveName{"scatter", CollectiveKind::Scatter},
                                            CollectiveName{"sendrecv", CollectiveKind::SendReceive},
                                            CollectiveName{"custom", CollectiveKind::Custom},
                                            CollectiveName{"test", CollectiveKind::Custom}};

constexpr const char* keyOf(CollectiveKind kind) {
  for (const CollectiveName& entry : collectiveNames) {
    if (entry.kind == kind) return entry.name;
  }
  return "custom";
}

constexpr const CollectiveName* findCollective(std::string_view name) {
  for (const CollectiveName& entry : collectiveNames) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

constexpr std::array bufferNames{"i", "o", "s"};                        // in the order of BufferKind
constexpr std::array accessNames{"local", "memory", "port", "switch"};  // in the order of Access

constexpr const char* keyOf(BufferKind buffer) {
  return bufferNames[static_cast<int>(buffer)];
}
constexpr const char* keyOf(Access access) {
  return accessNames[static_cast<int>(access)];
}

/// What an entry of src_buff or dst_buff is.
enum class Entry : unsigned char { None, Plain, Packet, RemotePlain, RemotePacket, SwitchPlain, SwitchPacket };

/// A data operation. `pairs`: source i goes to destination i; else all sources are reduced.
struct TransferShape {
  const char* name;
  Entry firstSource, sources;            ///< the first source, all further ones
  Entry firstDestination, destinations;  ///< the first destination, all further ones
  bool pairs = false;
  bool signals = false, flushes = false;
};

inline constexpr std::array transferShapes{
    TransferShape{"copy", Entry::Plain, Entry::Plain, Entry::Plain, Entry::Plain, true},
    TransferShape{"cpkt", Entry::Plain, Entry::Plain, Entry::Packet, Entry::Packet, true},
    TransferShape{"upkt", Entry::Packet, Entry::Packet, Entry::Plain, Entry::Plain, true},
    TransferShape{"get", Entry::RemotePlain, Entry::RemotePlain, Entry::Plain, Entry::Plain, true},
    TransferShape{"put", Entry::Plain, Entry::Plain, Entry::RemotePlain, Entry::RemotePlain, true},
    TransferShape{"pws", Entry::Plain, Entry::Plain, Entry::RemotePlain, Entry::RemotePlain, true, true},
    TransferShape{"pwsf", Entry::Plain, Entry::Plain, Entry::RemotePlain, Entry::RemotePlain, true, true, true},
    TransferShape{"ppkt", Entry::Plain, Entry::Plain, Entry::RemotePacket, Entry::RemotePacket, true},
    TransferShape{"rppkt", Entry::Packet, Entry::Packet, Entry::RemotePacket, Entry::RemotePacket, true},
    TransferShape{"gstore", Entry::Plain, Entry::Plain, Entry::SwitchPlain, Entry::SwitchPlain, true},
    TransferShape{"gstorepkt", Entry::Plain, Entry::Plain, Entry::SwitchPacket, Entry::SwitchPacket, true},
    TransferShape{"glre", Entry::SwitchPlain, Entry::None, Entry::Plain, Entry::None, true},
    TransferShape{"glres", Entry::SwitchPlain, Entry::None, Entry::SwitchPlain, Entry::SwitchPlain},
    TransferShape{"re", Entry::Plain, Entry::Plain, Entry::Plain, Entry::None},
    TransferShape{"res", Entry::Plain, Entry::Plain, Entry::Plain, Entry::RemotePlain},
    TransferShape{"rre", Entry::Plain, Entry::RemotePlain, Entry::Plain, Entry::None},
    TransferShape{"rres", Entry::Plain, Entry::RemotePlain, Entry::Plain, Entry::RemotePlain},
    TransferShape{"repkt", Entry::Plain, Entry::Packet, Entry::Plain, Entry::None},
    TransferShape{"recpkt", Entry::Plain, Entry::Packet, Entry::Plain, Entry::Packet},
    TransferShape{"respkt", Entry::Plain, Entry::Packet, Entry::Plain, Entry::RemotePacket},
    // Its first further destination is a local packet: see the reader.
    TransferShape{"recspkt", Entry::Plain, Entry::Packet, Entry::Plain, Entry::RemotePacket}};

struct SynchronisationName {
  const char* name;
  OperationKind kind;
  bool relaxed = false;
};
inline constexpr std::array synchronisationNames{SynchronisationName{"nop", OperationKind::Sync},
                                                 SynchronisationName{"barrier", OperationKind::Barrier},
                                                 SynchronisationName{"signal", OperationKind::Signal},
                                                 SynchronisationName{"wait", OperationKind::Wait},
                                                 SynchronisationName{"rlxsignal", OperationKind::Signal, true},
                                                 SynchronisationName{"rlxwait", OperationKind::Wait, true},
                                                 SynchronisationName{"flush", OperationKind::Flush},
                                                 SynchronisationName{"sem_acquire", OperationKind::Acquire},
                                                 SynchronisationName{"sem_release", OperationKind::Release}};

}  // namespace mscclpp::plan
