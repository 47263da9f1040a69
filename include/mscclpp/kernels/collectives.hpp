// The compiled collectives: element type and operator are run-time values, and the algorithm is chosen by message size.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "mscclpp/kernels/rms_norm_call.hpp"

struct CUstream_st;

namespace mscclpp {

/// Collectives over the ranks of a communicator. An object owns the scratch, epochs and wait monitor of one sequence of
/// calls. On DeviceType::GPU calls are enqueued on a stream and can be captured in a graph; on DeviceType::CPU they run
/// in the calling thread. One thread at a time calls an object.
///
/// *Streams.* Calls on different streams run one after another, and so do calls in one capture. A stream may be
/// destroyed as soon as its calls have been enqueued. The launches of a graph are not ordered: the caller orders them
/// among each other and with other calls of the object, as by launching all on one stream.
///
/// *Several objects on a GPU.* Kernels wait for those of the peers, so all blocks of those that run at once must fit in
/// the GPU. Each object of the process reserves blocks for its lifetime, `maxBlocks` for a call and as many for the
/// next call, which may start early. Objects that fit are concurrent: their calls may start in any order on each rank.
/// Calls of the others are chained: on each GPU they run one after another, eager or in graphs, without blocking the
/// host, and must be enqueued, or their graphs launched, in one order on all ranks; otherwise they time out. An object
/// that is alone on its GPU pays for none of this. docs/collectives.md says which fit.
class Collectives {
 public:
  /// The algorithms to set up: those that are selected by size, for messages of up to the sizes at which they are; or
  /// all, for messages of up to the sizes that they support. docs/collectives.md says how much memory that takes.
  enum class Algorithms { Selected, All };

  /// Called by all ranks of the communicator, which must be on one host; on GPUs, this rank uses the current device,
  /// here and in calls. Ranks that share it are of one process, and have so few blocks that the object is concurrent.
  /// Graphs that contain calls of a chained object that was alone on its GPU are captured again when another one has
  /// been made.
  /// maxBlocks: the most blocks of the kernel of a call on a GPU, the same on all ranks, for calls beside other
  /// kernels; 0: as many as are fastest, up to 128. If the GPU of a rank has room for fewer beside the concurrent
  /// objects, calls use as many as it has. An exchange takes one for each peer and direction at least. Throws Error.
  Collectives(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
              Algorithms algorithms = Algorithms::Selected, int maxBlocks = 0);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  /// Registers memory for outputs, of the same size on every rank, which all ranks map. A collective whose output lies
  /// in it may have its data stored there directly, by algorithms that need registration: "direct" and "copy_engine"
  /// (all_reduce, all_gather, all_to_all, broadcast) and "bulk" (all_gather, all_to_all, broadcast). Called by all
  /// ranks, in the same order as their other collectives. In every call each rank passes an output at the same offset
  /// in its buffer of the same registration, or none of them does. The registration ends with the handle, which each
  /// rank destroys between the same calls as the others, and before the memory is freed. Throws what RegisteredBuffer's
  /// constructor throws, and Error(InvalidUsage) for different sizes.
  [[nodiscard]] RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes);

  /// Performs a call. Called by all ranks of the communicator, in the same order as their other collectives; a
  /// SendReceive by the two ranks concerned, in the same order as their other transfers in that direction. The memory
  /// need not be registered, nor aligned beyond its elements. Throws Error(InvalidUsage) for wrong arguments and,
  /// after an earlier failure, what check() throws.
  void run(const CollectiveCall& call);
  /// Performs several calls on one stream, none of which may use what another one writes; the same calls on all ranks,
  /// in the same order. All-gathers, all-to-alls, broadcasts, gathers and scatters of up to 64 KiB (bytes of
  /// CollectiveCall::count elements) that follow one another are performed by one kernel, in which those from a rank to
  /// another are one message; all-reduces of up to 256 KiB, and reduce-scatters, that follow one another and have the
  /// same type and operator, by a kernel for each 1 MiB, if there is one for their type. Throws Error(InvalidUsage) for
  /// wrong arguments of any call, before the first one runs, else what run() throws.
  void run(std::span<const CollectiveCall> calls);

  // The same for each collective; CollectiveCall::count says what `count` is.

  /// Reduces `count` elements over all ranks; every rank gets the same bits in `output`. input == output is allowed,
  /// any other overlap is not.
  void allReduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& reduction,
                 CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// Reduces ranks * count elements; rank r gets those from r * count on. In place: output == input + rank * count.
  void reduceScatter(const void* input, void* output, std::size_t count, DataType type, const Reduction& reduction,
                     CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// Reduces `count` elements to `root`. input == output is allowed.
  void reduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& reduction, int root,
              CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// Every rank gets the `count` elements of each rank, in rank order. In place: input == output + rank * count.
  void allGather(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream = nullptr,
                 const std::string& algorithm = {});
  /// Part r of the input, of `count` elements, goes to rank r, into the part of the output for this rank. Not in place.
  void allToAll(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream = nullptr,
                const std::string& algorithm = {});
  /// Every rank gets the `count` elements of `root`. input == output is allowed.
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                 CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// `root` gets the `count` elements of each rank, in rank order. In place: input == output + rank * count at the
  /// root.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// Rank r gets part r of the input of `root`, of `count` elements. In place: output == input + rank * count at the
  /// root.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               CUstream_st* stream = nullptr, const std::string& algorithm = {});
  /// Sends `count` elements to rank `destination` and receives `receivedCount` from rank `origin`, at once; -1 leaves
  /// one of them out.
  void sendReceive(const void* input, std::size_t count, int destination, void* output, std::size_t receivedCount,
                   int origin, DataType type, CUstream_st* stream = nullptr, const std::string& algorithm = {});

  // With a number of elements for each rank. counts[r] and offsets[r], of a rank r, are in elements; there is one of
  // each for each rank; they are in host memory and are read before the call returns.

  /// Every rank gets the counts[r] elements of each rank r, at offsets[r] of its output. The counts are the same on all
  /// ranks, the offsets need not be. In place: input == output + offsets[rank]. An exchange(), in which a rank need not
  /// take part if its count and those of all others are 0.
  void allGatherV(const void* input, void* output, std::span<const std::size_t> counts,
                  std::span<const std::size_t> offsets, DataType type, CUstream_st* stream = nullptr);
  /// Sends sendCounts[r] elements, from sendOffsets[r] of the input on, to each rank r, and receives receiveCounts[r]
  /// from it, to receiveOffsets[r] of the output on: its sendCounts[rank]. Not in place. An exchange().
  void allToAllV(const void* input, std::span<const std::size_t> sendCounts, std::span<const std::size_t> sendOffsets,
                 void* output, std::span<const std::size_t> receiveCounts, std::span<const std::size_t> receiveOffsets,
                 DataType type, CUstream_st* stream = nullptr);
  /// Reduces, for each rank r, the counts[r] elements from offsets[r] of the inputs on; rank r gets the result. The
  /// counts are the same on all ranks, the offsets need not be. In place: output == input + offsets[rank].
  void reduceScatterV(const void* input, void* output, std::span<const std::size_t> counts,
                      std::span<const std::size_t> offsets, DataType type, const Reduction& reduction,
                      CUstream_st* stream = nullptr, const std::string& algorithm = {});

  /// Sends and receives up to maxSentMessages and maxReceivedMessages messages, which all progress together (as NCCL's
  /// sends and receives between ncclGroupStart and ncclGroupEnd). Called by each rank for the messages that it has part
  /// in; a rank without any makes no call. The k-th message that a sends to b, counted over all its calls of exchange()
  /// and sendReceive(), is the k-th that b receives from a; both give the same size. It does not matter how a rank
  /// divides its messages into calls, as long as the messages could be transferred if each of them needed both ranks to
  /// be in the call that has it. Messages of zero bytes match and move nothing. A message to oneself is sent and
  /// received by the same call; its data may be at the same place. Otherwise no two messages overlap.
  ///
  /// Where the sizes of sender and receiver differ, the call or a later one fails by a timeout, or delivers wrong data.
  /// On a GPU it is one kernel, of at least one block for each rank sent to and each received from; nothing is
  /// allocated. Throws Error(InvalidUsage) for wrong arguments and, after an earlier failure, what check() throws.
  void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                CUstream_st* stream = nullptr);

  /// Performs an all-reduce with residual and RMSNorm in one kernel; of messages of more than 8 MiB (on CPUs 256 KiB)
  /// in one for each part. Called by all ranks, in the same order as their other collectives. The first call for an
  /// element type allocates scratch on all ranks (on GPUs up to 40 MiB) and cannot be captured in a graph; later ones
  /// can. Throws Error(InvalidUsage) for wrong arguments and, after an earlier failure, what check() throws.
  void allReduceRmsNorm(const RmsNormCall& call);

  /// Sums `count` elements, of FLOAT32, FLOAT16 or BFLOAT16, over all ranks, sent as fp8 with a scale for each 128 of
  /// them: the errors, and which bits, are those of AllReduceFp8 (fusion/all_reduce_fp8.hpp). input == output is
  /// allowed, any other overlap is not. Calls, parts of long messages, scratch (on GPUs 30 MiB), capture and errors as
  /// of allReduceRmsNorm().
  void allReduceFp8(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream = nullptr);

  /// Throws if a wait of an earlier call failed: Error(RemoteError) that names a failed rank, Error(Timeout), or
  /// Error(Aborted). On GPUs call it after synchronising the stream. The outputs since the failure are then
  /// meaningless, on all ranks, also on those whose own waits succeeded; and the object can no longer be used.
  void check() const;

  /// Whether the object's calls may start in any order beside those of other objects, on each rank; else they are
  /// chained. The same on all ranks, from the construction on. True on CPUs.
  bool isConcurrent() const;

  /// The caller's rank, how many ranks there are, and where their data is.
  int rank() const;
  int ranks() const;
  DeviceType deviceType() const noexcept;

  /// The memory that this object has allocated so far on its device, on a CPU rank in host memory, in bytes: with the
  /// scratch of allReduceRmsNorm() and allReduceFp8(). Each allocation may take more, by the granularity of the device.
  std::size_t memoryBytes() const;

  /// The names of the algorithms of a collective that were set up.
  std::vector<std::string> algorithms(CollectiveType collective = CollectiveType::AllReduce) const;
  /// The algorithm that run() selects for such a call. Of its pointers, only the output matters: whether it is
  /// registered; null: it is not.
  std::string selectedAlgorithm(const CollectiveCall& call) const;
  /// Whether the call's algorithm supports such a call; false for an unknown algorithm.
  bool supports(const CollectiveCall& call) const;
  /// Whether run() would take an algorithm that needs registration for such a call if its output were registered: one
  /// that the call names, or that is selected then. Of its pointers none matters.
  bool takesRegisteredOutput(const CollectiveCall& call) const;

  /// Makes a trace for record(), with this object's rank, device and clock in place of those of the options.
  std::shared_ptr<Trace> makeTrace(TraceOptions options = {}) const;
  /// Records all later calls into `trace`: each call on a track of the calling thread and, if recordsStages() is true,
  /// its stages on tracks of the blocks. Stages are recorded by separately compiled kernels; the others contain no
  /// tracing code. Null stops recording, unless MSCCLPP_NPKIT_DUMP_DIR requests a trace of all calls that are not
  /// recorded otherwise. On GPUs the trace must outlive the calls.
  void record(std::shared_ptr<Trace> trace);
  /// Whether kernels that record their stages are compiled for such a call.
  bool recordsStages(const CollectiveCall& call) const;

  /// For tests: sets the epoch of the next call. Called on all ranks with the same value, with no call in progress.
  void setEpoch(std::uint64_t epoch);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mscclpp
