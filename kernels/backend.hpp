// What the host side of a collective needs from the place where it runs: memory of that place, and its compiled variants.
#pragma once

#include <cstddef>
#include <memory>

#include "all_reduce_call.hpp"
#include "mscclpp/basic/clock_exchange.hpp"
#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp::kernels {

struct Backend {
  /// Zero-filled memory that only this rank uses.
  std::shared_ptr<void> (*allocate)(std::size_t bytes);
  /// Both return when done.
  void (*fill)(void* address, int byte, std::size_t bytes);
  void (*upload)(void* address, const void* from, std::size_t bytes);
  /// Whether LL128 with whole lines may be used between all ranks; the same answer on each. Collective.
  bool (*linesStayWhole)(Bootstrap& bootstrap);
  AllReduceFunction (*findAllReduce)(std::size_t algorithm, DataType type, ReduceOp op, int ranks);
  /// The same algorithms as variants that record; null also for a type or operator without them.
  AllReduceFunction (*findTracedAllReduce)(std::size_t algorithm, DataType type, ReduceOp op, int ranks);
  /// For TraceOptions; null where the clock is the host's.
  void (*answerClock)(ClockExchange* exchange);
};

/// Of the current device. Throws Error(InvalidUsage) in a build without CUDA.
const Backend& gpuBackend();
const Backend& cpuBackend();

}  // namespace mscclpp::kernels
