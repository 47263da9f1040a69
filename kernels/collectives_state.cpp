#include "collectives_state.hpp"

#include <algorithm>
#include <utility>

#include "algorithms.hpp"
#include "call_arguments.hpp"
#include "environment_trace.hpp"
#include "exchange_call.hpp"
#include "host/communicator/group_setup.hpp"
#include "joined_reductions.hpp"
#include "kernels/movers/barrier.hpp"
#include "move_messages.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/sync/window.hpp"
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

/// The outputs of all ranks, for an algorithm that writes them directly.
Window<> outputsOf(std::size_t algorithm, const std::optional<RegisteredBuffers::Match>& output) {
  if (algorithmTable[algorithm].link != Link::Outputs) return {};
  return output->buffer->window<>().subWindow(output->offset);
}

/// The call with the messages of a list of one message in a direction.
CollectiveCall sendReceiveOf(const MessageList& list, CollectiveCall call) {
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

}  // namespace

// ---- set-up and state ----

Collectives::State::State(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms wanted,
                          int maxBlocks)
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
    requireEnvironmentTraceFolder();
    selection_.emplace(deviceType, backend_.deviceName(), ranks_, maxBlocks);
    return selectionBytes(*selection_, maxBlocks);
  }));
  const auto inUse = agreeOnAlgorithms(wanted, agreement);
  if (const auto budget = backend_.budget()) {
    // An exchange has a block at least for each pair of ranks and direction.
    share_ = reserveOnAllRanks(*communicator_->bootstrap(), budget, std::max(maxBlocks, 2 * ranks_ - 1), "Collectives");
    maxBlocks = std::min(maxBlocks, share_->blocks());
  }
  regions_.emplace(*communicator_, deviceType, backend_, inUse, maxBlocks);
  choice_.emplace(deviceType, ranks_, backend_, *selection_, *regions_);
  launcher_.emplace(rank_, ranks_, maxBlocks, backend_, *regions_, monitor_, share_.get());
  mover_.emplace(*communicator_, deviceType, CopyEngineOptions{}, monitor_);
  fused_.emplace(*communicator_, backend_, *launcher_, monitor_);
  if (isTraceRequested()) {
    environmentTrace_ = makeTrace({});
    record(nullptr);
  }
}

Collectives::State::~State() {
  if (environmentTrace_ && owner_.isCurrent()) writeEnvironmentTrace(*environmentTrace_, rank_);
}

std::vector<AlgorithmInUse> Collectives::State::agreeOnAlgorithms(
    Algorithms wanted, const mscclpp::detail::GroupAgreement& agreement) const {
  const auto hasBulkCopies =
      agreement.gather("query its GPU", [&] { return static_cast<char>(backend_.hasBulkCopies() ? 1 : 0); });
  const bool bulkCopies = std::ranges::all_of(hasBulkCopies, [](char ofRank) { return ofRank != 0; });
  const bool lineStoresAtomic = backend_.areLineStoresAtomic(*communicator_->bootstrap());
  auto usable = wanted == Algorithms::All ? allAlgorithms() : selection_->algorithmsInUse();
  std::erase_if(usable, [&](const auto& each) {
    const Algorithm& algorithm = algorithmTable[each.algorithm];
    return (algorithm.protocol == Protocol::LL128 && !lineStoresAtomic) ||
           (algorithm.protocol == Protocol::Bulk && !bulkCopies) ||
           (!onGpu_ && algorithm.backends != Backends::CpuAndGpu);
  });
  return usable;
}

RegisteredBuffers::Handle Collectives::State::registerBuffer(void* data, std::size_t bytes) {
  return registered_.add(RegisteredBuffer(*communicator_, data, bytes));
}

std::size_t Collectives::State::memoryBytes() const {
  return regions_->memoryBytes() + MoverBarrier::windowBytes(ranks_) + fused_->memoryBytes();
}

void Collectives::State::setEpoch(std::uint64_t epoch) {
  regions_->setEpoch(epoch);
  communicator_->bootstrap()->barrier();
}

// ---- which algorithm ----

std::optional<RegisteredBuffers::Match> Collectives::State::findOutput(const CollectiveCall& call) const {
  if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return std::nullopt;
  return registered_.find(call.output, outputBytesOf(call, rank_, ranks_));
}

std::size_t Collectives::State::select(const CollectiveCall& call) const {
  return choice_->select(call, bytesOf(call), hasRegisteredOutput(call));
}

bool Collectives::State::supports(const CollectiveCall& call) const {
  return choice_->supports(call, hasRegisteredOutput(call));
}

bool Collectives::State::takesRegisteredOutput(const CollectiveCall& call) const {
  if (!hasRegisteredForm(call.collective) || call.ignoresRegistration) return false;
  const std::size_t algorithm =
      call.algorithm.empty() ? choice_->select(call, bytesOf(call), true) : indexOf(call.collective, call.algorithm);
  return algorithm < algorithmTable.size() && needsRegistration(algorithmTable[algorithm]);
}

// ---- calls ----

template <class Body>
void Collectives::State::checked(const Body& body) {
  monitor_->check();
  body();
  if (!onGpu_) monitor_->check();
}

void Collectives::State::run(const CollectiveCall& call) {
  checked([&] {
    if (requireValid(call, rank_, ranks_)) runOne(call);
  });
}

void Collectives::State::run(std::span<const CollectiveCall> calls) {
  for (const CollectiveCall& call : calls) {
    requireValid(call, rank_, ranks_);
    if (call.stream != calls.front().stream) {
      throwInvalidCall(call,
                       "the calls of a group are on different streams: order the streams by events, and pass one");
    }
  }
  while (!calls.empty()) calls = calls.subspan(runFirst(calls));
}

void Collectives::State::exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                                  CUstream_st* stream) {
  checked([&] { transfer(sends, receives, stream, {}); });
}

void Collectives::State::allReduceRmsNorm(const RmsNormCall& call) {
  checked([&] { fused_->run(call); });
}

void Collectives::State::allReduceFp8(const Fp8Call& call, DataType type) {
  checked([&] { fused_->run(call, type); });
}

void Collectives::State::runOne(const CollectiveCall& call) {
  if (call.collective == CollectiveType::SendReceive) {
    const SentMessage sent{call.input, call.count * sizeOf(call.type), call.destination};
    const ReceivedMessage received{call.output, call.receivedCount * sizeOf(call.type), call.origin};
    transfer({&sent, call.destination < 0 ? 0u : 1u}, {&received, call.origin < 0 ? 0u : 1u}, call.stream,
             call.algorithm);
    return;
  }
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

void Collectives::State::transfer(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                                  CUstream_st* stream, const std::string& algorithm) {
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

void Collectives::State::moveTo(const Match& output, const CollectiveCall& call, std::size_t algorithm) {
  const std::size_t bytes = bytesOf(call);
  launcher_->enqueue(nameOf(call.collective), algorithm, bytes, call.stream, [&] {
    mover_->move(call.collective, call.input, output.buffer->window<>().subWindow(output.offset), bytes, call.root,
                 call.stream);
    return 0;
  });
}

void Collectives::State::reduceAndMoveTo(const Match& output, const CollectiveCall& call, std::size_t algorithm) {
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
         algorithm);
}

// ---- calls of a group ----

std::size_t Collectives::State::runFirst(std::span<const CollectiveCall> calls) {
  if (calls.size() > 1 && env()->algo.empty()) {
    if (const std::size_t moves = countOfJoinedMoves(calls, ranks_); moves > 1) {
      checked([&] { runJoinedMoves(calls.first(moves)); });
      return moves;
    }
    const std::size_t reductions = countOfJoinedReductions(calls, choice_->longestJoinedOf(calls.front()));
    if (reductions > 1) {
      checked([&] { runJoinedReductions(calls.first(reductions)); });
      return reductions;
    }
  }
  run(calls.front());
  return 1;
}

void Collectives::State::runJoinedReductions(std::span<const CollectiveCall> reductions) {
  const CollectiveCall call = joinedCallOf(reductions);
  if (call.count > 0) launcher_->run(call, choice_->selectJoined(call), {}, reductions);
}

void Collectives::State::runJoinedMoves(std::span<const CollectiveCall> moves) {
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
}

// ---- traces ----

std::shared_ptr<Trace> Collectives::State::makeTrace(TraceOptions options) const {
  options.rank = rank_;
  options.device = deviceType();
  options.launchClockSync = backend_.launchClockSync;
  return std::make_shared<Trace>(std::move(options));
}

void Collectives::State::record(std::shared_ptr<Trace> trace) {
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

bool Collectives::State::recordsStages(const CollectiveCall& call) const {
  return backend_.findTraced(fallbackOf(call.collective), call.type, ranks_) != nullptr;
}

}  // namespace mscclpp
