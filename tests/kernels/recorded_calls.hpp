// How many calls a Collectives performs, as its trace records them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/trace/trace_file.hpp"

namespace mscclpp::test {

/// Records the calls of an object, all of one thread, while it exists.
class RecordedCalls {
 public:
  RecordedCalls(Collectives& collectives, int rank)
      : collectives_(collectives), rank_(rank), trace_(collectives.makeTrace()) {
    collectives_.record(trace_);
  }
  ~RecordedCalls() { collectives_.record(nullptr); }
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  /// How many there were since this was called last.
  std::size_t sinceLast() {
    const TemporaryFile file("calls_of_rank_" + std::to_string(rank_) + ".json");
    writeTrace(file.path(), {trace_.get()});
    std::size_t all = 0;
    for (const auto& [key, track] : tracksOf(file.read())) {
      if (track.name == "calls") all = track.events.size() / 2;
    }
    return all - std::exchange(before_, all);
  }

 private:
  Collectives& collectives_;
  int rank_;
  std::shared_ptr<Trace> trace_;
  std::size_t before_ = 0;
};

}  // namespace mscclpp::test
