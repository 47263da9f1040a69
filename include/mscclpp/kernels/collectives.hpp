// The compiled collectives: element type and operator are run-time values, and the algorithm is chosen by message size.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/trace/trace.hpp"

struct CUstream_st;

namespace mscclpp {

/// Collectives over the ranks of a communicator. An object owns the scratch, epochs and wait monitor of one sequence of
/// calls, which must not overlap in time: use one stream per object.
///
/// Objects share nothing but the GPU. Long messages (algorithm "pipelined") occupy all of it, so two of them running at
/// once on a GPU must start in the same order on every rank; otherwise each waits for the other's blocks until it times
/// out. On DeviceType::GPU calls are enqueued on a stream and can be captured in a graph; on DeviceType::CPU they run
/// in the calling thread.
class Collectives {
 public:
  /// The algorithms to set up: those that are selected by size, or all.
  enum class Algorithms { Selected, All };

  /// Called by all ranks of the communicator, which must be on one host; on GPUs, this rank uses the current device.
  /// Throws Error.
  Collectives(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
              Algorithms algorithms = Algorithms::Selected);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  /// Reduces `count` elements over all ranks; every rank gets the same bits in `output`. Called by all ranks, in the
  /// same order as their other collectives. input == output is allowed, any other overlap is not. The memory need not
  /// be registered, nor aligned beyond its elements. stream: the stream to enqueue on, on GPUs. algorithm: one of
  /// algorithms(), or empty to select it by size. Throws Error(InvalidUsage) for null pointers, unknown types and
  /// unknown algorithms, and, after an earlier failure, what check() throws.
  void allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                 CUstream_st* stream = nullptr, const std::string& algorithm = {});

  /// Throws if a wait of an earlier call failed: Error(RemoteError) that names a failed rank, Error(Timeout), or
  /// Error(Aborted). On GPUs call it after synchronising the stream. The outputs since the failure are then
  /// meaningless, and the object can no longer be used.
  void check() const;

  /// The names of the algorithms that were set up.
  std::vector<std::string> algorithms() const;
  /// The algorithm that allReduce() selects for such a message.
  std::string selectedAlgorithm(std::size_t count, DataType type, ReduceOp op) const;

  /// Whether the algorithm supports such a message; false for an unknown algorithm.
  bool supports(const std::string& algorithm, std::size_t count, DataType type, ReduceOp op) const;

  /// Makes a trace for record(), with this object's rank, device and clock in place of those of the options.
  std::shared_ptr<Trace> makeTrace(TraceOptions options = {}) const;
  /// Records all later calls into `trace`: each call on a track of the calling thread and, if recordsStages() is true,
  /// its stages on tracks of the blocks. Stages are recorded by separately compiled kernels; the others contain no
  /// tracing code. Null stops recording, unless MSCCLPP_NPKIT_DUMP_DIR requests a trace of all calls that are not
  /// recorded otherwise. On GPUs the trace must outlive the calls.
  void record(std::shared_ptr<Trace> trace);
  /// Whether kernels that record their stages are compiled for this type and operator.
  bool recordsStages(DataType type, ReduceOp op) const;

  /// For tests: sets the epoch of the next call. Called on all ranks with the same value, with no call in progress.
  void setEpoch(std::uint64_t epoch);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mscclpp
