// The compiled collectives: checks of arguments, selection of the algorithm, calls of the kernels.
#include "mscclpp/kernels/collectives.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "algorithms.hpp"
#include "all_reduce_fp8.hpp"
#include "backend.hpp"
#include "call_arguments.hpp"
#include "call_order.hpp"
#include "exchange_call.hpp"
#include "gpu_budget.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "joined_reductions.hpp"
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

TraceId traceIdOf(std::size_t algorithm) {
  return static_cast<TraceId>(static_cast<std::size_t>(TraceId::Algorithm) + algorithm);
}
static_assert(static_cast<std::size_t>(TraceId::Algorithm) + algorithmTable.size() <
              static_cast<std::size_t>(TraceId::FirstUser));

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
        maxBlocks_(maxBlocks == 0 ? mostBlocks : maxBlocks),
        backend_(onGpu_ ? gpuBackend() : cpuBackend()),
        monitor_(std::make_shared<WaitMonitor>(*communicator_, deviceType)) {
    monitor_->setTeamIsJob();
    if (ranks_ > maxTeamSize) {
      throw Error("a team has at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                      std::to_string(ranks_) + ": split it",
                  ErrorCode::InvalidUsage);
    }
    const mscclpp::detail::GroupSetup setup(*communicator_);
    // What fails on one rank only, such as a file that it cannot read, is an error on all of them.
    const mscclpp::detail::GroupAgreement agreement(*communicator_->bootstrap(), "Collectives");
    requireSameSelection(agreement.runStep("select its algorithms", [&] {
      selection_.emplace(deviceType, backend_.deviceName(), ranks_, maxBlocks_);
      return selectionBytes(*selection_, maxBlocks_);
    }));
    bulkCopies_ = true;
    for (const auto& ofRank : agreement.runStep(
             "query its GPU", [&] { return std::vector<char>{static_cast<char>(backend_.hasBulkCopies() ? 1 : 0)}; })) {
      bulkCopies_ &= ofRank.at(0) != 0;
    }
    lineStoresAtomic_ = backend_.areLineStoresAtomic(*communicator_->bootstrap());
    auto inUse = wanted == Algorithms::All ? allAlgorithms() : selection_->algorithmsInUse();
    std::erase_if(inUse, [&](const auto& each) { return !isAvailable(algorithmTable[each.algorithm]); });
    if (const auto budget = backend_.budget()) {
      // An exchange has a block at least for each pair of ranks and direction.
      share_ =
          reserveOnAllRanks(*communicator_->bootstrap(), budget, std::max(maxBlocks_, 2 * ranks_ - 1), "Collectives");
      maxBlocks_ = std::min(maxBlocks_, share_->blocks());
    }
    regions_.emplace(*communicator_, deviceType, backend_, inUse, maxBlocks_);
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
      const std::size_t algorithm = choose(call, bytesOf(call), output.has_value());
      if (algorithmTable[algorithm].variants != Variants::CopyEngine) {
        runKernel(call, algorithm, output);
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
    const std::size_t size = requireParts("all_gather_v", counts, offsets, type);
    const std::size_t own = counts[static_cast<std::size_t>(rank_)] * size;
    MessageArray<SentMessage> sends;
    MessageArray<ReceivedMessage> receives;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      sends[r] = {input, own, static_cast<int>(r)};
      receives[r] = {static_cast<std::byte*>(output) + offsets[r] * size, counts[r] * size, static_cast<int>(r)};
    }
    exchange({sends.data(), counts.size()}, {receives.data(), counts.size()}, stream);
  }

  void allToAllV(const void* input, std::span<const std::size_t> sendCounts, std::span<const std::size_t> sendOffsets,
                 void* output, std::span<const std::size_t> receiveCounts, std::span<const std::size_t> receiveOffsets,
                 DataType type, CUstream_st* stream) {
    const std::size_t size = requireParts("all_to_all_v", sendCounts, sendOffsets, type);
    requireParts("all_to_all_v", receiveCounts, receiveOffsets, type);
    MessageArray<SentMessage> sends;
    MessageArray<ReceivedMessage> receives;
    for (std::size_t r = 0; r < sendCounts.size(); ++r) {
      const int peer = static_cast<int>(r);
      sends[r] = {static_cast<const std::byte*>(input) + sendOffsets[r] * size, sendCounts[r] * size, peer};
      receives[r] = {static_cast<std::byte*>(output) + receiveOffsets[r] * size, receiveCounts[r] * size, peer};
    }
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
      enqueue("all_reduce_rms_norm", fallbackOf(CollectiveType::AllReduce), some.rows * rowBytes, call.stream,
              [&] { return kernels.run(some, maxBlocks_, share_ ? share_->start() : KernelStart::InOrder); });
    }
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void allReduceFp8(const Fp8Call& call, DataType type) {
    const char* const name = "all_reduce_fp8";
    if (monitor_->failed()) monitor_->check();
    if (type != DataType::FLOAT32 && type != DataType::FLOAT16 && type != DataType::BFLOAT16) {
      throw Error(
          std::string(name) + ": data type " + nameOf(type) + " is not supported; convert to float, half or bfloat16",
          ErrorCode::InvalidUsage);
    }
    if (call.count == 0) return;
    if (call.input == nullptr || call.output == nullptr) {
      throw Error(std::string(name) + ": input or output is null", ErrorCode::InvalidUsage);
    }
    const Fp8Kernels& kernels = kernelsFor(fp8Kernels_[type], name, call.stream,
                                           [&] { return backend_.makeAllReduceFp8(type, *communicator_, monitor_); });
    const std::size_t size = sizeOf(type);
    for (std::size_t first = 0; first < call.count; first += kernels.capacity()) {
      const Fp8Call some{static_cast<const std::byte*>(call.input) + first * size,
                         static_cast<std::byte*>(call.output) + first * size,
                         std::min(call.count - first, kernels.capacity()), call.stream};
      enqueue(name, fallbackOf(CollectiveType::AllReduce), some.count * size, call.stream,
              [&] { return kernels.run(some, maxBlocks_, share_ ? share_->start() : KernelStart::InOrder); });
    }
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  void check() const { monitor_->check(); }

  std::size_t memoryBytes() const { return regions_->memoryBytes() + MoverBarrier::windowBytes(ranks_); }

  bool isConcurrent() const { return share_ == nullptr || share_->isConcurrent(); }

  std::vector<std::string> algorithmsOf(CollectiveType collective) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
      if (algorithmTable[i].collective == collective && isSetUp(i)) names.emplace_back(algorithmTable[i].name);
    }
    return names;
  }

  std::size_t select(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const {
    return firstChoice(call.collective, bytes, [&](std::size_t algorithm) {
      return isSetUp(algorithm) && canRun(algorithm, call.type, isRegistered);
    });
  }
  std::size_t select(const CollectiveCall& call) const {
    return select(call, bytesOf(call), call.output != nullptr && findOutput(call).has_value());
  }

  bool supports(const CollectiveCall& call) const {
    const std::size_t algorithm = indexOf(call.collective, call.algorithm);
    return algorithm < algorithmTable.size() && isSetUp(algorithm) && !isTooLong(algorithm, bytesOf(call)) &&
           canRun(algorithm, call.type, call.output != nullptr && findOutput(call).has_value());
  }

  bool takesRegisteredOutput(const CollectiveCall& call) const {
    if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return false;
    const std::size_t algorithm =
        call.algorithm.empty() ? select(call, bytesOf(call), true) : indexOf(call.collective, call.algorithm);
    return algorithm < algorithmTable.size() && needsRegistration(algorithmTable[algorithm]);
  }

  std::shared_ptr<Trace> makeTrace(TraceOptions options) const {
    options.rank = rank_;
    options.device = onGpu_ ? DeviceType::GPU : DeviceType::CPU;
    options.launchClockSync = backend_.launchClockSync;
    return std::make_shared<Trace>(std::move(options));
  }

  void record(std::shared_ptr<Trace> trace) {
    trace_ = trace ? std::move(trace) : environmentTrace_;
    if (!trace_) return;
    for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
      const Algorithm& algorithm = algorithmTable[i];
      const bool isAllReduce = algorithm.collective == CollectiveType::AllReduce;
      const std::string prefix = isAllReduce ? "" : std::string(nameOf(algorithm.collective)) + " ";
      trace_->name(traceIdOf(i), prefix + algorithm.name, "bytes");
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

  /// Throws unless there is a count and an offset for each rank; returns the bytes of an element.
  std::size_t requireParts(const char* name, std::span<const std::size_t> counts, std::span<const std::size_t> offsets,
                           DataType type) const {
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
    return size;
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

  bool isAvailable(const Algorithm& algorithm) const {
    if (algorithm.protocol == Protocol::LL128 && !lineStoresAtomic_) return false;
    if (algorithm.protocol == Protocol::Bulk && !bulkCopies_) return false;
    return onGpu_ || algorithm.backends == Backends::CpuAndGpu;
  }

  bool isSetUp(std::size_t algorithm) const {
    return algorithmTable[algorithm].variants == Variants::CopyEngine || regions_->find(algorithm) != nullptr;
  }
  /// The longest message of an algorithm that is set up; noLimit: any.
  std::size_t longestOf(std::size_t algorithm) const {
    const std::size_t supported = algorithmTable[algorithm].maxBytes;
    return supported == noLimit ? noLimit : std::min(supported, regions_->find(algorithm)->capacity);
  }
  bool isTooLong(std::size_t algorithm, std::size_t bytes) const {
    return longestOf(algorithm) != noLimit && bytes > longestOf(algorithm);
  }
  /// Whether an algorithm that is set up can run a call with elements of this type. isRegistered: its output is.
  bool canRun(std::size_t algorithm, DataType type, bool isRegistered) const {
    if (needsRegistration(algorithmTable[algorithm]) && !isRegistered) return false;
    return algorithmTable[algorithm].variants == Variants::CopyEngine ||
           backend_.find(algorithm, type, ranks_) != nullptr;
  }

  /// Where the output of a call is registered, if the collective has algorithms for that. Every rank has an output
  /// then, and so finds it there or not alike.
  std::optional<RegisteredBuffers::Match> findOutput(const CollectiveCall& call) const {
    if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return std::nullopt;
    return registered_.find(call.output, outputBytesOf(call, rank_, ranks_));
  }

  /// The algorithm of a call for a message of `bytes` bytes: the one that it names, or the selected one.
  std::size_t choose(const CollectiveCall& call, std::size_t bytes, bool isRegistered = false) const {
    return call.algorithm.empty() ? select(call, bytes, isRegistered) : findNamed(call, bytes, isRegistered);
  }

  std::size_t findNamed(const CollectiveCall& call, std::size_t bytes, bool isRegistered) const {
    const std::size_t index = indexOf(call.collective, call.algorithm);
    if (index == algorithmTable.size() || !isSetUp(index)) {
      std::string known;
      for (const std::string& each : algorithmsOf(call.collective)) known += (known.empty() ? "" : ", ") + each;
      throwInvalidCall(call, "unknown algorithm \"" + call.algorithm + "\"; available: " + known);
    }
    const Algorithm& algorithm = algorithmTable[index];
    if (isTooLong(index, bytes)) {
      const bool fitsInAll = bytes <= algorithm.maxBytes;
      throwInvalidCall(call, call.algorithm + (fitsInAll ? " is set up for" : " supports") + " messages of up to " +
                                 std::to_string(longestOf(index)) + " bytes, not " + std::to_string(bytes) +
                                 ": do not name an algorithm, " +
                                 (fitsInAll ? "construct Collectives with Algorithms::All, on all ranks, " : "") +
                                 "or use " + algorithmTable[fallbackOf(call.collective)].name);
    }
    if (needsRegistration(algorithm) && !isRegistered) {
      throwInvalidCall(call, call.algorithm +
                                 " needs an output inside memory that registerBuffer() has registered, on " +
                                 "all ranks" + (call.ignoresRegistration ? ", and no ignoresRegistration" : "") +
                                 ": register it, or do not name an algorithm");
    }
    if (!canRun(index, call.type, isRegistered)) {
      throwInvalidCall(
          call, call.algorithm + " is not compiled for data type " + nameOf(call.type) + ": do not name an algorithm");
    }
    return index;
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
      message.algorithm = choose(oneMessage, message.bytes);
      areAlike = areAlike && message.algorithm == list.messages[0].algorithm;
      sent += message.input != nullptr ? 1 : 0;
      received += message.output != nullptr ? 1 : 0;
    }
    if (list.count == 0) return;
    if (areAlike && sent <= 1 && received <= 1) {
      runKernel(sendReceiveOf(list, oneMessage), list.messages[0].algorithm);
    } else {
      runExchange(list, stream);
    }
  }

  /// Performs the first of valid calls, together with those after it that can be joined with it. Returns how many.
  std::size_t runFirst(std::span<const CollectiveCall> calls) {
    if (calls.size() > 1 && env()->algo.empty()) {
      if (const std::size_t moves = countOfJoinedMoves(calls, ranks_); moves > 1) {
        runJoined(calls.first(moves));
        return moves;
      }
      const std::size_t reductions = countOfJoinedReductions(calls, longestJoinedOf(calls.front()));
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
    runKernel(call, selectJoined(call), std::nullopt, reductions);
    if (!onGpu_ && monitor_->failed()) monitor_->check();
  }

  /// The first of the selection's choices for so many bytes that `suits`, or the fallback.
  template <class Suits>
  std::size_t firstChoice(CollectiveType collective, std::size_t bytes, const Suits& suits) const {
    for (const Selection::Choice& choice : selection_->choices(collective)) {
      if (choice.maxBytes != noLimit && bytes > choice.maxBytes) continue;
      if (suits(choice.algorithm)) return choice.algorithm;
    }
    return fallbackOf(collective);
  }

  bool canRunJoined(std::size_t algorithm, DataType type) const {
    return isSetUp(algorithm) && backend_.findJoined(algorithm, type, ranks_) != nullptr;
  }
  /// The most bytes of a call that performs several of the collective and type of this one; 0 if none can.
  std::size_t longestJoinedOf(const CollectiveCall& call) const {
    if (!isJoined(call.collective)) return 0;
    const std::size_t most = onGpu_ ? mostJoinedBytes : mostJoinedBytesOnCpu;
    if (canRunJoined(fallbackOf(call.collective), call.type)) return most;
    std::size_t longest = 0;
    for (const Selection::Choice& choice : selection_->choices(call.collective)) {
      if (canRunJoined(choice.algorithm, call.type))
        longest = std::max(longest, choice.maxBytes == noLimit ? most : choice.maxBytes);
    }
    return std::min(longest, most);
  }
  /// As select(), for such a call of that many bytes at most.
  std::size_t selectJoined(const CollectiveCall& call) const {
    return firstChoice(call.collective, bytesOf(call),
                       [&](std::size_t algorithm) { return canRunJoined(algorithm, call.type); });
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
          select({.collective = CollectiveType::SendReceive, .type = DataType::UINT8}, message.bytes, false);
    }
    runExchange(list, moves.front().stream, &parts);
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

  /// Runs the messages of a list by one kernel, in which all pairs of ranks progress together: a message that is
  /// received may be needed by others before the ones that this call sends can be received. joined: as of ExchangeCall.
  void runExchange(const MessageList& list, CUstream_st* stream, const MessageList* joined = nullptr) {
    const auto timeout = static_cast<std::uint64_t>(monitor_->timeout().count());
    ExchangeCall call{.rank = rank_,
                      .ranks = ranks_,
                      .window = regions_->window().data(),
                      .places = {},
                      .wait = BoundedWait(monitor_->deviceControl(), timeout),
                      .list = list,
                      .joined = joined,
                      .shape = shapeOf(list),
                      .stream = stream,
                      .start = share_ ? share_->start() : KernelStart::InOrder};
    for (std::size_t i = 0; i < messageAlgorithms; ++i) {
      const Region* const region = regions_->find(firstMessageAlgorithm + i);
      if (region != nullptr) call.places[i] = {region->offset, region->capacity, region->pipeline};
    }
    std::size_t bytes = 0;
    for (int m = 0; m < list.count; ++m) bytes += list.messages[static_cast<std::size_t>(m)].bytes;
    enqueue("exchange", fallbackOf(CollectiveType::SendReceive), bytes, stream,
            [&] { return backend_.exchange(call); });
  }

  /// Enqueues a call of `bytes` bytes by launch(), which returns 0 or a cudaError_t: records it as one of an algorithm,
  /// and lets it run after the earlier calls of this object and of its chain. Throws CudaError, which names the call.
  template <class Launch>
  void enqueue(const char* name, std::size_t algorithm, std::size_t bytes, CUstream_st* stream, const Launch& launch) {
    const auto track = trace_ ? trace_->trackOfThisThread("calls") : nullptr;
    if (track) track->begin(traceIdOf(algorithm), bytes);
    CallOrder::Turn turn = share_ != nullptr ? share_->begin(stream) : CallOrder::Turn();
    const int error = launch();
    turn.end();
    if (track) track->end(traceIdOf(algorithm));
    if (error != 0) throw CudaError(std::string(name) + ": the launch failed", error);
  }

  /// Runs a valid call by copy engines.
  void moveTo(const RegisteredBuffers::Match& output, const CollectiveCall& call, std::size_t index) {
    const std::size_t bytes = bytesOf(call);
    enqueue(nameOf(call.collective), index, bytes, call.stream, [&] {
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
      runKernel(kernelCall, choose(kernelCall, bytesOf(kernelCall)));
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

  /// Runs a valid call by the kernel of an algorithm. joined: the calls that it performs, if they are several.
  void runKernel(const CollectiveCall& call, std::size_t index,
                 const std::optional<RegisteredBuffers::Match>& output = std::nullopt,
                 std::span<const CollectiveCall> joined = {}) {
    const Algorithm& algorithm = algorithmTable[index];
    const Region& region = *regions_->find(index);
    const std::size_t bytes = bytesOf(call);
    const bool reduces = hasReduction(call.collective);
    const KernelFunction traced = trace_ && joined.empty() ? backend_.findTraced(index, call.type, ranks_) : nullptr;
    const KernelFunction function = !joined.empty()     ? backend_.findJoined(index, call.type, ranks_)
                                    : traced != nullptr ? traced
                                                        : backend_.find(index, call.type, ranks_);
    Window<> outputs{};
    if (algorithm.link == Link::Outputs) outputs = output->buffer->window<>().subWindow(output->offset);
    const std::size_t elementBytes = reduces ? 1 : sizeOf(call.type);
    const auto timeout = static_cast<std::uint64_t>(monitor_->timeout().count());
    enqueue(nameOf(call.collective), index, bytes, call.stream, [&] {
      return function({.rank = rank_,
                       .ranks = ranks_,
                       .window = region.window.data(),
                       .epochs = static_cast<std::uint64_t*>(region.epochs.get()),
                       .capacity = region.capacity,
                       .pipeline = region.pipeline,
                       .wait = BoundedWait(monitor_->deviceControl(), timeout),
                       .input = call.input,
                       .output = call.output,
                       .outputs = outputs.base,
                       .count = longestCountOf(call) * elementBytes,
                       .reduction = call.reduction,
                       .root = call.root,
                       .destination = call.destination,
                       .origin = call.origin,
                       .receivedCount = call.receivedCount * elementBytes,
                       .counts = call.counts.data(),
                       .offsets = call.offsets.data(),
                       .shape = shapeOf(call, algorithm, region, bytes),
                       .stream = call.stream,
                       .trace = trace_ ? trace_->buffer() : TraceBuffer{},
                       .joined = joined,
                       .start = share_ ? share_->start() : KernelStart::InOrder});
    });
  }

  LaunchShape shapeOf(const CollectiveCall& call, const Algorithm& algorithm, const Region& region,
                      std::size_t bytes) const {
    if (!takesAnySize(algorithm.protocol)) {
      return packetShape(algorithm, ceilDivide(bytes, sizeof(Word128)), ranks_, maxBlocks_);
    }
    const int threads = gpuPipeline(algorithm, ranks_, maxBlocks_).threads;
    if (call.collective != CollectiveType::SendReceive) return {region.pipeline.blocks, threads};
    const int parts = call.destination >= 0 && call.origin >= 0 && call.origin != rank_ ? 2 : 1;
    return {parts * messageBlocks(algorithm, region.pipeline, bytes, ranks_, std::max(maxBlocks_ / parts, 1)), threads};
  }

  /// Every pair has as many blocks as the message that needs most.
  LaunchShape shapeOf(const MessageList& list) const {
    const int most = std::max(maxBlocks_ / list.pairCount, 1);
    LaunchShape shape{1, 0};
    for (int m = 0; m < list.count; ++m) {
      const MessageList::Message& message = list.messages[static_cast<std::size_t>(m)];
      const Algorithm& algorithm = algorithmTable[message.algorithm];
      const PipelineShape& rings = regions_->find(message.algorithm)->pipeline;
      shape.blocks = std::max(shape.blocks, messageBlocks(algorithm, rings, message.bytes, ranks_, most));
      const int threads =
          isPipelined(algorithm.protocol)
              ? gpuPipeline(algorithm, ranks_, maxBlocks_).threads
              : packetShape(algorithm, ceilDivide(message.bytes, sizeof(Word128)), ranks_, most).threads;
      shape.threads = std::max(shape.threads, threads);
    }
    shape.blocks *= list.pairCount;
    return shape;
  }

  const mscclpp::detail::OwnerProcess owner_;  // a forked child writes no trace
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  int ranks_;
  bool onGpu_;
  int maxBlocks_;
  bool lineStoresAtomic_ = false;
  bool bulkCopies_ = false;  // on all ranks
  const Backend& backend_;
  std::optional<Selection> selection_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::unique_ptr<GpuBudget::Share> share_;  // null on CPUs
  std::optional<Regions> regions_;
  std::optional<CopyEngineMover> mover_;
  std::map<DataType, std::unique_ptr<RmsNormKernels>> rmsNormKernels_;  // those in use
  std::map<DataType, std::unique_ptr<Fp8Kernels>> fp8Kernels_;          // those in use
  RegisteredBuffers registered_;
  std::shared_ptr<Trace> environmentTrace_;  // if the environment asks for one
  std::shared_ptr<Trace> trace_;             // null: calls are not recorded
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
