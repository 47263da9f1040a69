// The log lines of the C API: at NCCL_DEBUG's level, unless MSCCLPP_LOG_LEVEL sets one.
#pragma once

#include <string>

#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::nccl {

/// Writes a message of one or more lines, if lines of its level are written. Never throws.
void log(LogLevel level, const std::string& message) noexcept;
/// Writes a message in any case: what the user asked for. Never throws.
void print(const std::string& message) noexcept;

/// Whether NCCL_DEBUG asks for the version: VERSION, or a level that has more.
bool printsVersion() noexcept;

}  // namespace mscclpp::nccl
