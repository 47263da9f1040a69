// The compiled collectives: element types and operators at run time, an algorithm chosen by size, one call.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/trace.hpp"

struct CUstream_st;

namespace mscclpp {

/// Scratch, epochs and the wait monitor of one sequence of collectives: one stream, or calls ordered among themselves in another way. For streams that run
/// at the same time make a context each; contexts share nothing but the GPU: long messages (algorithm "pipelined") fill
/// it, so two of them at once on one GPU must start in the same order on every rank, or each waits for the other's blocks
/// until the deadline. On DeviceType::GPU calls are enqueued on a stream and can be captured in a graph; on
/// DeviceType::CPU they run in the calling thread, which is this rank.
class Collectives {
 public:
  /// What is set up, beside what the choice by size needs.
  enum class Algorithms { Chosen, All };

  /// Collective over all ranks of the communicator, which must be on one host; on GPUs, the current device is this rank's. Throws Error.
  Collectives(std::shared_ptr<Communicator> communicator, DeviceType where, Algorithms algorithms = Algorithms::Chosen);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  /// Reduces `count` elements over all ranks; every rank gets the same bits in `output`. input == output is allowed, any other overlap is not. Memory need
  /// not be registered, nor aligned beyond the element. All ranks make the same calls in the same order. algorithm: a name of algorithms(), or empty for the
  /// choice by size. On GPUs `stream` is the stream to enqueue on.
  /// Throws Error(InvalidUsage) for null pointers, unknown types and names, and what check() throws for an earlier failure.
  void allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                 CUstream_st* stream = nullptr, const std::string& algorithm = {});

  /// Throws if a wait of an earlier call failed: Error(RemoteError) that names a rank that was lost, Error(Timeout), or Error(Aborted). On GPUs call it after
  /// synchronising the stream; the outputs since the failure are then meaningless and this context is to be destroyed.
  void check() const;

  /// Names of the algorithms that were set up.
  std::vector<std::string> algorithms() const;
  /// The one that a call without a name would use.
  std::string chosen(std::size_t count, DataType type, ReduceOp op) const;

  /// Whether the algorithm of that name takes such a message; false for an unknown name.
  bool serves(const std::string& algorithm, std::size_t count, DataType type, ReduceOp op) const;

  /// A trace for record(), with rank, device and clock of these collectives in place of those of the options.
  std::shared_ptr<Trace> makeTrace(TraceOptions options = {}) const;
  /// From now on calls are recorded: each on a track of the calling thread, and its stages on those of the blocks where recordsStages says so. Those run as
  /// variants of their own: without a trace, nothing of it is compiled into the kernels. Null: no more, unless MSCCLPP_NPKIT_DUMP_DIR asks for a trace of all
  /// that is not recorded elsewhere. On GPUs the trace must outlive the calls.
  void record(std::shared_ptr<Trace> trace);
  /// Whether variants that record their stages are compiled for this type and operator.
  bool recordsStages(DataType type, ReduceOp op) const;

  /// For tests: sets the number of the next call, on every rank alike and with no call in progress.
  void setEpoch(std::uint64_t epoch);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mscclpp
