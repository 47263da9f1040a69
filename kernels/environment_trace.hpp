// The trace that MSCCLPP_NPKIT_DUMP_DIR asks for.
#pragma once

#include "mscclpp/host/trace/trace.hpp"

namespace mscclpp::kernels {

/// Whether the environment asks for traces.
bool isTraceRequested();

/// Throws Error(InvalidUsage) unless traces that the environment asks for can be written: they are when the Collectives
/// are destroyed, which is too late for an error.
void requireEnvironmentTraceFolder();

/// Writes the trace of a rank to the folder named by the environment, without overwriting existing files. What fails is
/// logged.
void writeEnvironmentTrace(Trace& trace, int rank) noexcept;

}  // namespace mscclpp::kernels
