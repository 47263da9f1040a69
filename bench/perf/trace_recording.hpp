// The trace of a run: additional calls that are not timed.
#pragma once

#include <memory>

#include "backend.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "options.hpp"
#include "rank_group.hpp"
#include "report.hpp"

namespace mscclpp::perf {

/// Every function is called by all ranks.
class TraceRecording {
 public:
  /// example: a call like those that will be recorded. Throws Error(InvalidUsage) if its stages cannot be.
  TraceRecording(const Options& options, const RankGroup& group, Collectives& collectives, Backend& backend,
                 const CollectiveCall& example);
  /// Records Options::tracedCalls calls.
  void add(const Call& call);
  /// Writes the file. report: null on all ranks but 0.
  void write(Bootstrap& bootstrap, const Report* report);

 private:
  void runTraced(const Call& call, const std::shared_ptr<Trace>& trace, int calls);

  const Options& options_;
  const RankGroup& group_;
  Collectives& collectives_;
  Backend& backend_;
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<Trace> discardedTrace_;
};

}  // namespace mscclpp::perf
