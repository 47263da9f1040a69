// writeTrace: the trace of one process, or of all ranks of a host, as one file.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "host/trace/trace_file.hpp"
#include "host/trace/trace_gather.hpp"
#include "host/trace/trace_json.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

using detail::JsonChunk;
using detail::TraceFile;
using detail::TraceJson;

void writeTrace(const std::string& path, const std::vector<Trace*>& traces) {
  std::set<int> ranks;
  for (const Trace* trace : traces) {
    if (trace == nullptr) throw Error("writeTrace: a trace is null", ErrorCode::InvalidUsage);
    const int rank = TraceJson::rankOf(*trace);
    if (!ranks.insert(rank).second) {
      throw Error("writeTrace: two traces are of rank " + std::to_string(rank) +
                      ", and would be one process of the file; set TraceOptions::rank",
                  ErrorCode::InvalidUsage);
    }
  }
  TraceFile file(path);
  std::vector<std::string> summaries;
  for (Trace* trace : traces) {
    const TraceJson json(*trace);
    json.forEachChunk([&](const JsonChunk& chunk) { file.add(chunk); });
    summaries.push_back(json.summary());
  }
  file.close(summaries);
}

void writeTrace(const std::string& path, Trace& trace, Bootstrap& bootstrap) {
  if (bootstrap.getNranksPerNode() != bootstrap.getNranks()) {
    throw Error("writeTrace: the ranks of a trace must be on one host, whose clock they share; write one file a host",
                ErrorCode::InvalidUsage);
  }
  const bool isRoot = bootstrap.getRank() == 0;
  std::unique_ptr<TraceFile> file;
  std::unique_ptr<TraceJson> json;
  detail::GroupAgreement(bootstrap, "writeTrace").runStep("open the trace", [&] {
    json = std::make_unique<TraceJson>(trace);
    if (isRoot) file = std::make_unique<TraceFile>(path);
    return std::vector<char>{};
  });
  if (isRoot) {
    detail::receiveTraces(*file, *json, bootstrap);
  } else {
    detail::sendTrace(*json, bootstrap);
  }
}

}  // namespace mscclpp
