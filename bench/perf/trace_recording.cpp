#include "trace_recording.hpp"

#include <numeric>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

TraceRecording::TraceRecording(const Options& options, const RankGroup& group, Collectives& collectives,
                               Backend& backend, const CollectiveCall& example)
    : options_(options),
      group_(group),
      collectives_(collectives),
      backend_(backend),
      trace_(collectives.makeTrace({.eventsPerRecorder = 1 << 14})),
      discardedTrace_(collectives.makeTrace({.eventsPerRecorder = 2})) {
  if (collectives.recordsStages(example)) return;
  const std::string op = hasReduction(example.collective) ? std::string(" with ") + nameOf(options.op) : "";
  throw Error(std::string("--trace: no kernels that record their stages are compiled for ") +
                  nameOf(example.collective) + " of " + nameOf(options.type) + op +
                  "; for all_reduce they are for float32 and bfloat16 with operator sum",
              ErrorCode::InvalidUsage);
}

void TraceRecording::add(const Call& call) {
  // The first call of a variant loads its kernel; it is not recorded.
  runTraced(call, discardedTrace_, 1);
  runTraced(call, trace_, options_.tracedCalls);
  trace_->collect();
}

void TraceRecording::write(Bootstrap& bootstrap, const Report* report) {
  writeTrace(options_.traceFile, *trace_, bootstrap);
  const auto lost = group_.gather(trace_->lost());
  if (report) report->printTraceSummary(std::accumulate(lost.begin(), lost.end(), std::uint64_t{0}));
}

void TraceRecording::runTraced(const Call& call, const std::shared_ptr<Trace>& trace, int calls) {
  collectives_.record(trace);
  group_.barrier();
  backend_.runOnce([&](CUstream_st* stream) {
    for (int i = 0; i < calls; ++i) call(stream);
  });
  collectives_.record(nullptr);
}

}  // namespace mscclpp::perf
