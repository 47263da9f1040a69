// Plans in files.
#pragma once

#include <string>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// The plan of a file in MSCCL++'s JSON schema (json.hpp), MSCCL's XML (xml.hpp) or the text form (text.hpp): the first
/// character tells which. Throws what the reader of the form throws, and Error(InvalidUsage) if the file is empty or
/// cannot be read; the message names the file.
NamedPlan fromFile(const std::string& path);

}  // namespace mscclpp::plan
