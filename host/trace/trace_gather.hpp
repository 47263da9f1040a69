// How the traces of all ranks are sent to rank 0, which writes the file.
#pragma once

#include "host/trace/trace_file.hpp"
#include "host/trace/trace_json.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

/// Rank 0: writes its own trace and those of all peers to the file, which is complete on return. Throws errors of this
/// rank, and Error(RemoteError) for errors of a peer; then every peer throws too.
void receiveTraces(TraceFile& file, const TraceJson& own, Bootstrap& bootstrap);

/// Every other rank. Throws errors of this rank, and Error(RemoteError) if rank 0 cannot write the file.
void sendTrace(const TraceJson& own, Bootstrap& bootstrap);

}  // namespace mscclpp::detail
