// The compiled collectives: checks of arguments, selection of the algorithm, calls of the kernels.
#include "mscclpp/kernels/collectives.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "algorithm_choice.hpp"
#include "algorithms.hpp"
#include "all_reduce_fp8.hpp"
#include "backend.hpp"
#include "call_arguments.hpp"
#include "exchange_call.hpp"
#include "gpu_budget.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "joined_reductions.hpp"
#include "kernel_launcher.hpp"
#include "kernels/movers/barrier.hpp"
#include "move_messages.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/kernels/copy_engine_mover.hpp"
#include "mscclpp/sync/window.hpp"
#include "regions.hpp"
#include "rms_norm.hpp"
#include "selection.hpp"
#include "tuning.hpp"

namespace mscclpp {

using namespace kernels;

namespace {

/// What the ranks must have in common, as bytes to compare.
std::vector<char> selectionBytes(const Selection& selection, int maxBlocks) {
  std::vector<std::size_t> words{static_cast<std::size_t>(maxBlocks)};
  for (int i = 0; i < collectiveTypes; ++i) {
    for (const Selection::Choice& choice : selection.choices(static_cast<CollectiveType>(i))) {
      words.insert(words.end(), {choice.maxBytes, choice.algorithm});  // an index tells the collective too
    }
  }
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  return {bytes, bytes + words.size() * sizeof(std::size_t)};
}

/// Throws unless traces that the environment asks for can be written: they are when the object is destroyed, which is
/// too late for an error.
void requireTraceFolder() {
  const std::string& folder = env()->npkitDumpDir;
  if (folder.empty() || (std::filesystem::is_directory(folder) && ::access(folder.c_str(), W_OK | X_OK) == 0)) return;
  throw Error("MSCCLPP_NPKIT_DUMP_DIR is '" + folder +
                  "', which is not a folder that this process may write to: make the folder, or unset the variable",
              ErrorCode::InvalidUsage);
}

/// Throws on all ranks unless all select the same algorithms and launch shapes.
void requireSameSelection(const std::vector<std::vector<char>>& selections) {
  for (std::size_t r = 1; r < selections.size(); ++r) {
    if (selections[r] == selections[0]) continue;
    throw Error("rank " + std::to_string(r) +
                    " selects other algorithms than rank 0: set MSCCLPP_ALGO and MSCCLPP_TUNING_FILE to the same on "
                    "all ranks, and give all ranks the same file, kind of GPU and maxBlocks",
                ErrorCode::InvalidUsage);
  }
}

}  // namespace

class Collectives::State {
 public:
  State(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms wanted, int maxBlocks)
      : communicator_(std::move(communicator)),
        rank_(communicator_->bootstrap()->getRank()),
        ranks_(communicator_->bootstrap()->getNranks()),
        onGpu_(deviceType == DeviceType::GPU),
        backend_(onGpu_ ? gpuBackend() : cpuBackend()),
        monitor_(WaitMonitor::ofTeam(*communicator_, deviceType)) {
    if (maxBlocks == 0) maxBlocks = mostBlocks;
    if (ranks_ > maxTeamSize) {
      throw Error("a team has at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                      std::to_string(ranks_) + ": split it",
                  ErrorCode::InvalidUsage);
    }
    const mscclpp::detail::GroupSetup setup(*communicator_);
    // What fails on one rank only, such as a file that it cannot read, is an error on all of them.
    const mscclpp::detail::GroupAgreement agreement(*communicator_->bootstrap(), "Collectives");
    requireSameSelection(agreement.runStep("apply its environment variables and select its algorithms", [&] {
      requireTraceFolder();
      selection_.emplace(deviceType, backend_.deviceName(), ranks_, maxBlocks);
      return selectionBytes(*selection_, maxBlocks);
    }));
    const auto hasBulkCopies =
        agreement.gather("query its GPU", [&] { return static_cast<char>(backend_.hasBulkCopies() ? 1 : 0); });
    const bool bulkCopies = std::ranges::all_of(hasBulkCopies, [](char ofRank) { return ofRank != 0; });
    const bool lineStoresAtomic = backend_.areLineStoresAtomic(*communicator_->bootstrap());
    auto inUse = wanted == Algorithms::All ? allAlgorithms() : selection_->algorithmsInUse();
    std::erase_if(inUse, [&](const auto& each) {
      const Algorithm& algorithm = algorithmTable[each.algorithm];
      return (algorithm.protocol == Protocol::LL128 && !lineStoresAtomic) ||
             (algorithm.protocol == Protocol::Bulk && !bulkCopies) ||
             (!onGpu_ && algorithm.backends != Backends::CpuAndGpu);
    });
    if (const auto budget = backend_.budget()) {
      // An exchange has a block at least for each pair of ranks and direction.
      share_ =
          reserveOnAllRanks(*communicator_->bootstrap(), budget, std::max(maxBlocks, 2 * ranks_ - 1), "Collectives");
      maxBlocks = std::min(maxBlocks, share_->blocks());
    }
    regions_.emplace(*communicator_, deviceType, backend_, inUse, maxBlocks);
    choice_.emplace(deviceType, ranks_, backend_, *selection_, *regions_);
    launcher_.emplace(rank_, ranks_, maxBlocks, backend_, *regions_, monitor_, share_.get());
    mover_.emplace(*communicator_, deviceType, CopyEngineOptions{}, monitor_);
    if (!env()->npkitDumpDir.empty()) {
      environmentTrace_ = makeTrace({});
      record(nullptr);
    }
  }
  ~State() {
    if (environmentTrace_ && owner_.isCurrent()) writeEnvironmentTrace();
  }

  RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes) {
    return registered_.add(RegisteredBuffer(*communicator_, data, bytes));
  }

  void run(const CollectiveCall& call) {
    if (monitor_->failed()) monitor_->check();
    if (!requireValid(call, rank_, ranks_)) return;
    if (call.collective == CollectiveType::SendReceive) {
      const SentMessage sent{call.input, call.count * sizeOf(call.type), call.destination};
      const ReceivedMessage received{call.output, call.receivedCount * sizeOf(call.type), call.origin};
      transfer({&sent, call.destination < 0 ? 0u : 1u}, {&received, call.origin < 0 ? 0u : 1u}, call.stream,
               call.algorithm);
    } else {
      const auto output = findOutput(call);
      const std::size_t algorithm = choice_->choose(call, bytesOf(call), output.has_value());
      if (algorithmTable[algorithm].variants != Variants::CopyEngine) {
        launcher_->run(call, algorithm, outputsOf(algorithm, output));
      } else if (call.collective == CollectiveType::AllReduce) {
        reduceAndMoveTo(*output, call, algorithm);
      } else {
        moveTo(*output, call, algorithm);
      }
    }
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void run(std::span<const CollectiveCall> calls) {
    for (const CollectiveCall& call : calls) {
      requireValid(call, rank_, ranks_);
      if (call.stream != calls.front().stream) {
        throwInvalidCall(call,
                         "the calls of a group are on different streams: order the streams by events, and pass one");
      }
    }
    while (!calls.empty()) calls = calls.subspan(runFirst(calls));
  }

  void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, CUstream_st* stream) {
    if (monitor_->failed()) monitor_->check();
    transfer(sends, receives, stream, {});
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void allGatherV(const void* input, void* output, std::span<const std::size_t> counts,
                  std::span<const std::size_t> offsets, DataType type, CUstream_st* stream) {
    const std::size_t size = requireParts("all_gather_v", {"output", output}, counts, offsets, type);
    const std::size_t own = counts[static_cast<std::size_t>(rank_)] * size;
    if (own > 0 && input == nullptr) throwNullArray("all_gather_v", "input");
    MessageArray<SentMessage> sends;
    MessageArray<ReceivedMessage> receives;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      sends[r] = {input, own, static_cast<int>(r)};
      receives[r] = {partOf(output, offsets[r] * size), counts[r] * size, static_cast<int>(r)};
    }
    requireSeparate("all_gather_v", {sends.data(), 1}, {receives.data(), counts.size()});
    exchange({sends.data(), counts.size()}, {receives.data(), counts.size()}, stream);
  }

  void allToAllV(const void* input, std::span<const std::size_t> sendCounts, std::span<const std::size_t> sendOffsets,
                 void* output, std::span<const std::size_t> receiveCounts, std::span<const std::size_t> receiveOffsets,
                 DataType type, CUstream_st* stream) {
    const std::size_t size = requireParts("all_to_all_v", {"input", input}, sendCounts, sendOffsets, type);
    requireParts("all_to_all_v", {"output", output}, receiveCounts, receiveOffsets, type);
    MessageArray<SentMessage> sends;
    MessageArray<ReceivedMessage> receives;
    for (std::size_t r = 0; r < sendCounts.size(); ++r) {
      const int peer = static_cast<int>(r);
      sends[r] = {partOf(input, sendOffsets[r] * size), sendCounts[r] * size, peer};
      receives[r] = {partOf(output, receiveOffsets[r] * size), receiveCounts[r] * size, peer};
    }
    requireSeparate("all_to_all_v", {sends.data(), sendCounts.size()}, {receives.data(), receiveCounts.size()});
    exchange({sends.data(), sendCounts.size()}, {receives.data(), receiveCounts.size()}, stream);
  }

  void allReduceRmsNorm(const RmsNormCall& call) {
    if (monitor_->failed()) monitor_->check();
    if (!requireValid(call)) return;
    const RmsNormKernels& kernels = kernelsFor(rmsNormKernels_[call.type], "all_reduce_rms_norm", call.stream, [&] {
      return backend_.makeRmsNorm(call.type, *communicator_, monitor_);
    });
    const std::size_t rowBytes = call.hidden * sizeOf(call.type);
    // An even number: the quantised rows, of half as many bytes as the others, begin at multiples of 16 too.
    const std::size_t rowsAtOnce = kernels.capacity() / rowBytes / 2 * 2;
    for (std::size_t first = 0; first < call.rows; first += rowsAtOnce) {
      const auto from = [&](const void* array) {
        return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + first * rowBytes;
      };
      const auto into = [&](void* array) {
        return array == nullptr ? nullptr : static_cast<std::byte*>(array) + first * rowBytes;
      };
      RmsNormCall some = call;
      some.input = from(call.input);
      some.residual = from(call.residual);
      some.newResidual = into(call.newResidual);
      some.normalised = into(call.normalised);
      if (call.quantised != nullptr) some.quantised = static_cast<std::byte*>(call.quantised) + first * call.hidden;
      if (call.scales != nullptr) some.scales = call.scales + first * call.scalesOfRow();
      some.rows = std::min(call.rows - first, rowsAtOnce);
      launcher_->enqueue("all_reduce_rms_norm", fallbackOf(CollectiveType::AllReduce), some.rows * rowBytes,
                         call.stream, [&] { return kernels.run(some, launcher_->maxBlocks(), launcher_->start()); });
    }
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void allReduceFp8(const Fp8Call& call, DataType type) {
    const char* const name = "all_reduce_fp8";
    if (monitor_->failed()) monitor_->check();
    if (!requireValid(call, type)) return;
    const Fp8Kernels& kernels = kernelsFor(fp8Kernels_[type], name, call.stream,
                                           [&] { return backend_.makeAllReduceFp8(type, *communicator_, monitor_); });
    const std::size_t size = sizeOf(type);
    for (std::size_t first = 0; first < call.count; first += kernels.capacity()) {
      const Fp8Call some{static_cast<const std::byte*>(call.input) + first * size,
                         static_cast<std::byte*>(call.output) + first * size,
                         std::min(call.count - first, kernels.capacity()), call.stream};
      launcher_->enqueue(name, fallbackOf(CollectiveType::AllReduce), some.count * size, call.stream,
                         [&] { return kernels.run(some, launcher_->maxBlocks(), launcher_->start()); });
    }
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void check() const { monitor_->check(); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  DeviceType deviceType() const noexcept { return onGpu_ ? DeviceType::GPU : DeviceType::CPU; }

  std::size_t memoryBytes() const {
    std::size_t bytes = regions_->memoryBytes() + MoverBarrier::windowBytes(ranks_);
    // None, where the scratch could not be allocated.
    for (const auto& [type, kernels] : rmsNormKernels_) bytes += kernels == nullptr ? 0 : kernels->memoryBytes();
    for (const auto& [type, kernels] : fp8Kernels_) bytes += kernels == nullptr ? 0 : kernels->memoryBytes();
    return bytes;
  }

  bool isConcurrent() const { return launcher_->isConcurrent(); }

  std::vector<std::string> algorithmsOf(CollectiveType collective) const { return choice_->namesOf(collective); }

  std::size_t select(const CollectiveCall& call) const {
    return choice_->select(call, bytesOf(call), hasRegisteredOutput(call));
  }

  bool supports(const CollectiveCall& call) const { return choice_->supports(call, hasRegisteredOutput(call)); }

  bool takesRegisteredOutput(const CollectiveCall& call) const {
    if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return false;
    const std::size_t algorithm =
        call.algorithm.empty() ? choice_->select(call, bytesOf(call), true) : indexOf(call.collective, call.algorithm);
    return algorithm < algorithmTable.size() && needsRegistration(algorithmTable[algorithm]);
  }

  std::shared_ptr<Trace> makeTrace(TraceOptions options) const {
    options.rank = rank_;
    options.device = onGpu_ ? DeviceType::GPU : DeviceType::CPU;
    options.launchClockSync = backend_.launchClockSync;
    return std::make_shared<Trace>(std::move(options));
  }

  void record(std::shared_ptr<Trace> trace) {
    if (!trace) trace = environmentTrace_;
    launcher_->record(trace);
    if (!trace) return;
    for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
      const Algorithm& algorithm = algorithmTable[i];
      const bool isAllReduce = algorithm.collective == CollectiveType::AllReduce;
      const std::string prefix = isAllReduce ? "" : std::string(nameOf(algorithm.collective)) + " ";
      trace->name(KernelLauncher::traceIdOf(i), prefix + algorithm.name, "bytes");
    }
  }

  bool recordsStages(const CollectiveCall& call) const {
    return backend_.findTraced(fallbackOf(call.collective), call.type, ranks_) != nullptr;
  }

  void setEpoch(std::uint64_t epoch) {
    regions_->setEpoch(epoch);
    communicator_->bootstrap()->barrier();
  }

 private:
  /// A message to or from each rank.
  template <class Message>
  using MessageArray = std::array<Message, maxTeamSize>;
  static_assert(maxTeamSize <= maxSentMessages && maxTeamSize <= maxReceivedMessages);

  struct Array {
    const char* name;
    const void* data;
  };
  /// Null of an array that is null, which has no parts: nothing may be added to that.
  static const std::byte* partOf(const void* array, std::size_t offset) {
    return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + offset;
  }
  static std::byte* partOf(void* array, std::size_t offset) {
    return array == nullptr ? nullptr : static_cast<std::byte*>(array) + offset;
  }
  [[noreturn]] static void throwNullArray(const char* call, const char* array) {
    throw Error(std::string(call) + ": " + array + " is null and counts are not 0: pass memory for them",
                ErrorCode::InvalidUsage);
  }

  /// Throws unless there is a count and an offset for each rank, and an array for what they count; returns the bytes of
  /// an element.
  std::size_t requireParts(const char* name, const Array& array, std::span<const std::size_t> counts,
                           std::span<const std::size_t> offsets, DataType type) const {
    const auto fail = [&](const std::string& why) {
      throw Error(std::string(name) + ": " + why, ErrorCode::InvalidUsage);
    };
    const auto wanted = static_cast<std::size_t>(ranks_);
    if (counts.size() != wanted || offsets.size() != wanted) {
      fail("there are " + std::to_string(counts.size()) + " counts and " + std::to_string(offsets.size()) +
           " offsets; it takes one of each for each of " + std::to_string(ranks_) + " ranks");
    }
    const std::size_t size = sizeOf(type);
    if (size == 0) fail(std::string("data type ") + nameOf(type) + " is not supported");
    for (const auto numbers : {counts, offsets}) {
      if (*std::max_element(numbers.begin(), numbers.end()) > std::numeric_limits<std::size_t>::max() / 8 / size) {
        fail("a count or offset is larger than the address space; was it a negative number?");
      }
    }
    if (array.data == nullptr && *std::max_element(counts.begin(), counts.end()) > 0) throwNullArray(name, array.name);
    return size;
  }

  /// Throws if data is received, one message from each rank, where other data is sent from. What this rank sends to
  /// itself may stay in its place. The messages of an exchange are not checked so: programs for NCCL send and receive
  /// data that they do not read at one place.
  void requireSeparate(const char* name, std::span<const SentMessage> sends,
                       std::span<const ReceivedMessage> receives) const {
    const void* const own = sends[std::min(static_cast<std::size_t>(rank_), sends.size() - 1)].data;
    for (const ReceivedMessage& received : receives) {
      if (received.origin == rank_ && received.data == own) continue;
      const auto* const to = static_cast<const std::byte*>(received.data);
      for (const SentMessage& sent : sends) {
        const auto* const from = static_cast<const std::byte*>(sent.data);
        const std::less<const std::byte*> isBefore;
        if (sent.bytes == 0 || received.bytes == 0) continue;
        if (!isBefore(from, to + received.bytes) || !isBefore(to, from + sent.bytes)) continue;
        throw Error(std::string(name) + ": input and output overlap: the part from rank " +
                        std::to_string(received.origin) + " is written where data for rank " +
                        std::to_string(sent.destination) +
                        " is read; use other memory for the output (only this rank's own part may stay in its place)",
                    ErrorCode::InvalidUsage);
      }
    }
  }

  /// Writes this rank's trace to the directory named by the environment, without overwriting existing files.
  void writeEnvironmentTrace() const noexcept {
    try {
      const std::filesystem::path folder = env()->npkitDumpDir;
      const std::string name = "trace_rank_" + std::to_string(rank_);
      std::filesystem::path path = folder / (name + ".json");
      for (int i = 2; std::filesystem::exists(path); ++i) path = folder / (name + "_" + std::to_string(i) + ".json");
      writeTrace(path.string(), {environmentTrace_.get()});
    } catch (const std::exception& error) {
      logMessage(LogLevel::Warn, LogSubsystem::Algo,
                 "cannot write the trace to MSCCLPP_NPKIT_DUMP_DIR: ", error.what());
    }
  }

  /// Where the output of a call is registered, if the collective has algorithms for that. Every rank has an output
  /// then, and so finds it there or not alike.
  std::optional<RegisteredBuffers::Match> findOutput(const CollectiveCall& call) const {
    if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return std::nullopt;
    return registered_.find(call.output, outputBytesOf(call, rank_, ranks_));
  }

  /// The outputs of all ranks, for an algorithm that writes them directly.
  static Window<> outputsOf(std::size_t algorithm, const std::optional<RegisteredBuffers::Match>& output) {
    if (algorithmTable[algorithm].link != Link::Outputs) return {};
    return output->buffer->window<>().subWindow(output->offset);
  }
  bool hasRegisteredOutput(const CollectiveCall& call) const {
    return call.output != nullptr && findOutput(call).has_value();
  }

  /// Performs an exchange; `algorithm` is that of all messages, or empty.
  void transfer(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, CUstream_st* stream,
                const std::string& algorithm) {
    MessageList list = messageListOf(sends, receives, rank_, ranks_);
    const CollectiveCall oneMessage{
        .collective = CollectiveType::SendReceive, .type = DataType::UINT8, .stream = stream, .algorithm = algorithm};
    int sent = 0;
    int received = 0;
    bool areAlike = true;
    for (int m = 0; m < list.count; ++m) {
      MessageList::Message& message = list.messages[static_cast<std::size_t>(m)];
      message.algorithm = choice_->choose(oneMessage, message.bytes);
      areAlike = areAlike && message.algorithm == list.messages[0].algorithm;
      sent += message.input != nullptr ? 1 : 0;
      received += message.output != nullptr ? 1 : 0;
    }
    if (list.count == 0) return;
    if (areAlike && sent <= 1 && received <= 1) {
      launcher_->run(sendReceiveOf(list, oneMessage), list.messages[0].algorithm);
    } else {
      launcher_->exchange(list, stream);
    }
  }

  /// Performs the first of valid calls, together with those after it that can be joined with it. Returns how many.
  std::size_t runFirst(std::span<const CollectiveCall> calls) {
    if (calls.size() > 1 && env()->algo.empty()) {
      if (const std::size_t moves = countOfJoinedMoves(calls, ranks_); moves > 1) {
        runJoined(calls.first(moves));
        return moves;
      }
      const std::size_t reductions = countOfJoinedReductions(calls, choice_->longestJoinedOf(calls.front()));
      if (reductions > 1) {
        runJoinedReductions(calls.first(reductions));
        return reductions;
      }
    }
    run(calls.front());
    return 1;
  }

  /// Performs reductions that countOfJoinedReductions() has counted by one kernel.
  void runJoinedReductions(std::span<const CollectiveCall> reductions) {
    if (monitor_->failed()) monitor_->check();
    const CollectiveCall call = joinedCallOf(reductions);
    if (call.count == 0) return;
    launcher_->run(call, choice_->selectJoined(call), {}, reductions);
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  /// Performs moves that countOfJoinedMoves() has counted. All ranks know how long they are, so that those of a pair of
  /// ranks are one message.
  void runJoined(std::span<const CollectiveCall> moves) {
    if (monitor_->failed()) monitor_->check();
    const Messages messages = messagesOf(moves, rank_, ranks_);
    const MessageList parts = messageListOf(messages.sent, messages.received, rank_, ranks_);
    if (parts.count == 0) return;
    MessageList list = joinedByPair(parts);
    for (int m = 0; m < list.count; ++m) {
      MessageList::Message& message = list.messages[static_cast<std::size_t>(m)];
      message.algorithm =
          choice_->select({.collective = CollectiveType::SendReceive, .type = DataType::UINT8}, message.bytes, false);
    }
    launcher_->exchange(list, moves.front().stream, &parts);
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  /// The kernels that make() makes, together with the other ranks, for the first call for an element type.
  template <class Kernels, class Make>
  const Kernels& kernelsFor(std::unique_ptr<Kernels>& kernels, const char* name, CUstream_st* stream,
                            const Make& make) {
    if (kernels == nullptr) {
      if (backend_.isCapturing(stream)) {
        throw Error(std::string(name) +
                        ": the first call for an element type allocates scratch, which a graph cannot: make a call "
                        "before the capture",
                    ErrorCode::InvalidUsage);
      }
      const mscclpp::detail::GroupSetup setup(*communicator_);
      kernels = make();
    }
    return *kernels;
  }

  /// The call with the messages of a list of one message in a direction.
  CollectiveCall sendReceiveOf(const MessageList& list, CollectiveCall call) const {
    for (int p = 0; p < list.pairCount; ++p) {
      const PairMessages& pair = list.pairs[static_cast<std::size_t>(p)];
      const MessageList::Message& message = list.messages[pair.first];
      if (pair.side != PairSide::Receiver) {
        call.input = message.input;
        call.count = message.bytes;
        call.destination = pair.peer;
      }
      if (pair.side != PairSide::Sender) {
        call.output = message.output;
        call.receivedCount = message.bytes;
        call.origin = pair.peer;
      }
    }
    return call;
  }

  /// Runs a valid call by copy engines.
  void moveTo(const RegisteredBuffers::Match& output, const CollectiveCall& call, std::size_t index) {
    const std::size_t bytes = bytesOf(call);
    launcher_->enqueue(nameOf(call.collective), index, bytes, call.stream, [&] {
      mover_->move(call.collective, call.input, output.buffer->window<>().subWindow(output.offset), bytes, call.root,
                   call.stream);
      return 0;
    });
  }

  /// Runs a valid all-reduce: a kernel reduces this rank's part, which copy engines then move to all ranks. Parts are
  /// of equal length; the few elements that are left are reduced by every rank.
  void reduceAndMoveTo(const RegisteredBuffers::Match& output, const CollectiveCall& call, std::size_t index) {
    const std::size_t size = sizeOf(call.type);
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::size_t part = call.count / ranks;
    const auto from = [&](std::size_t element, std::size_t count) {
      CollectiveCall some = call;
      some.input = static_cast<const std::byte*>(call.input) + element * size;
      some.output = static_cast<std::byte*>(call.output) + element * size;
      some.count = count;
      some.algorithm.clear();
      return some;
    };
    const auto runSelected = [&](const CollectiveCall& kernelCall) {
      launcher_->run(kernelCall, choice_->choose(kernelCall, bytesOf(kernelCall)));
    };
    if (call.count % ranks != 0) runSelected(from(part * ranks, call.count % ranks));
    if (part == 0) return;
    CollectiveCall reduction = from(static_cast<std::size_t>(rank_) * part, part);
    void* const own = reduction.output;
    reduction.collective = CollectiveType::ReduceScatter;
    reduction.input = call.input;
    runSelected(reduction);
    moveTo(output,
           {.collective = CollectiveType::AllGather,
            .input = own,
            .output = call.output,
            .count = part,
            .type = call.type,
            .stream = call.stream},
           index);
  }

  const mscclpp::detail::OwnerProcess owner_;  // a forked child writes no trace
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  int ranks_;
  bool onGpu_;
  const Backend& backend_;
  std::optional<Selection> selection_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::unique_ptr<GpuBudget::Share> share_;  // null on CPUs
  std::optional<Regions> regions_;
  std::optional<AlgorithmChoice> choice_;
  std::optional<KernelLauncher> launcher_;
  std::optional<CopyEngineMover> mover_;
  std::map<DataType, std::unique_ptr<RmsNormKernels>> rmsNormKernels_;  // those in use
  std::map<DataType, std::unique_ptr<Fp8Kernels>> fp8Kernels_;          // those in use
  RegisteredBuffers registered_;
  std::shared_ptr<Trace> environmentTrace_;  // if the environment asks for one
};

Collectives::Collectives(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms algorithms,
                         int maxBlocks) {
  if (communicator == nullptr) throw Error("Collectives: the communicator is null", ErrorCode::InvalidUsage);
  if (deviceType != DeviceType::GPU && deviceType != DeviceType::CPU) {
    throw Error("Collectives: deviceType must be DeviceType::GPU or DeviceType::CPU", ErrorCode::InvalidUsage);
  }
  if (maxBlocks < 0 || maxBlocks > mostBlocks) {
    throw Error("Collectives: maxBlocks is " + std::to_string(maxBlocks) + "; it is 1 to " +
                    std::to_string(mostBlocks) + ", or 0 for as many as are fastest",
                ErrorCode::InvalidUsage);
  }
  state_ = std::make_unique<State>(std::move(communicator), deviceType, algorithms, maxBlocks);
}
Collectives::~Collectives() = default;

RegisteredBuffers::Handle Collectives::registerBuffer(void* data, std::size_t bytes) {
  return state_->registerBuffer(data, bytes);
}

void Collectives::run(const CollectiveCall& call) {
  state_->run(call);
}
void Collectives::run(std::span<const CollectiveCall> calls) {
  state_->run(calls);
}

void Collectives::allReduce(const void* input, void* output, std::size_t count, DataType type,
                            const Reduction& reduction, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::AllReduce,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::reduceScatter(const void* input, void* output, std::size_t count, DataType type,
                                const Reduction& reduction, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::ReduceScatter,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::reduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& reduction,
                         int root, CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Reduce,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .reduction = reduction,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allGather(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream,
                            const std::string& algorithm) {
  run({.collective = CollectiveType::AllGather,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allToAll(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream,
                           const std::string& algorithm) {
  run({.collective = CollectiveType::AllToAll,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                            CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Broadcast,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                         CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Gather,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                          CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::Scatter,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .root = root,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::sendReceive(const void* input, std::size_t count, int destination, void* output,
                              std::size_t receivedCount, int origin, DataType type, CUstream_st* stream,
                              const std::string& algorithm) {
  run({.collective = CollectiveType::SendReceive,
       .input = input,
       .output = output,
       .count = count,
       .type = type,
       .destination = destination,
       .origin = origin,
       .receivedCount = receivedCount,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::allGatherV(const void* input, void* output, std::span<const std::size_t> counts,
                             std::span<const std::size_t> offsets, DataType type, CUstream_st* stream) {
  state_->allGatherV(input, output, counts, offsets, type, stream);
}

void Collectives::allToAllV(const void* input, std::span<const std::size_t> sendCounts,
                            std::span<const std::size_t> sendOffsets, void* output,
                            std::span<const std::size_t> receiveCounts, std::span<const std::size_t> receiveOffsets,
                            DataType type, CUstream_st* stream) {
  state_->allToAllV(input, sendCounts, sendOffsets, output, receiveCounts, receiveOffsets, type, stream);
}

void Collectives::reduceScatterV(const void* input, void* output, std::span<const std::size_t> counts,
                                 std::span<const std::size_t> offsets, DataType type, const Reduction& reduction,
                                 CUstream_st* stream, const std::string& algorithm) {
  run({.collective = CollectiveType::ReduceScatterV,
       .input = input,
       .output = output,
       .type = type,
       .reduction = reduction,
       .counts = counts,
       .offsets = offsets,
       .stream = stream,
       .algorithm = algorithm});
}

void Collectives::exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                           CUstream_st* stream) {
  state_->exchange(sends, receives, stream);
}

void Collectives::allReduceRmsNorm(const RmsNormCall& call) {
  state_->allReduceRmsNorm(call);
}

void Collectives::allReduceFp8(const void* input, void* output, std::size_t count, DataType type, CUstream_st* stream) {
  state_->allReduceFp8({input, output, count, stream}, type);
}

void Collectives::check() const {
  state_->check();
}

std::size_t Collectives::memoryBytes() const {
  return state_->memoryBytes();
}

int Collectives::rank() const {
  return state_->rank();
}

int Collectives::ranks() const {
  return state_->ranks();
}

DeviceType Collectives::deviceType() const noexcept {
  return state_->deviceType();
}

bool Collectives::isConcurrent() const {
  return state_->isConcurrent();
}

std::vector<std::string> Collectives::algorithms(CollectiveType collective) const {
  return state_->algorithmsOf(collective);
}

std::string Collectives::selectedAlgorithm(const CollectiveCall& call) const {
  return kernels::algorithmTable[state_->select(call)].name;
}

bool Collectives::supports(const CollectiveCall& call) const {
  return state_->supports(call);
}

bool Collectives::takesRegisteredOutput(const CollectiveCall& call) const {
  return state_->takesRegisteredOutput(call);
}

std::shared_ptr<Trace> Collectives::makeTrace(TraceOptions options) const {
  return state_->makeTrace(std::move(options));
}

void Collectives::record(std::shared_ptr<Trace> trace) {
  state_->record(std::move(trace));
}

bool Collectives::recordsStages(const CollectiveCall& call) const {
  return state_->recordsStages(call);
}

void Collectives::setEpoch(std::uint64_t epoch) {
  state_->setEpoch(epoch);
}

}  // namespace mscclpp
