// The names under which a trace shows the library's events.
#pragma once

#include <map>
#include <string>

#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/sync/trigger.hpp"

namespace mscclpp::detail {

struct TraceNames {
  std::string event;
  std::string argument;     ///< name of the argument of begin and point
  std::string endArgument;  ///< name of the argument of end
};

/// "put + signal", for example; empty if no known bit is set.
std::string nameOf(TriggerType request);

std::map<TraceId, TraceNames> traceNamesOfLibrary();

}  // namespace mscclpp::detail
