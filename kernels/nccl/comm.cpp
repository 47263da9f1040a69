#include "kernels/nccl/comm.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "kernels/call_arguments.hpp"
#include "kernels/message_exchange.hpp"
#include "kernels/nccl/call_counts.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/element_type.hpp"
#include "kernels/nccl/exchanged_value.hpp"
#include "kernels/nccl/handle.hpp"
#include "kernels/nccl/log.hpp"
#include "kernels/nccl/profiler_range.hpp"
#include "kernels/tuning.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::nccl {

namespace {

using detail::GroupAgreement;

/// What the ranks of a new communicator tell each other.
struct Introduction {
  UniqueId successor;
  int maxBlocks;
  SignalNames signals;
  mscclpp::detail::Id128 process;
  int device;
};

/// Ranks of one process need a GPU each: on one, a kernel that waits for a peer may keep the peer's from starting.
void requireOwnDevice(const std::vector<Introduction>& ranks) {
  std::map<std::pair<mscclpp::detail::Id128, int>, std::size_t> rankOf;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].device == noDevice) continue;
    const auto [other, isFirst] = rankOf.emplace(std::pair(ranks[rank].process, ranks[rank].device), rank);
    if (isFirst) continue;
    throwInvalidUsage("ranks " + std::to_string(other->second) + " and " + std::to_string(rank) +
                      " of one process use GPU " + std::to_string(ranks[rank].device) +
                      ": make another GPU current before each ncclCommInitRank, or pass each GPU once to "
                      "ncclCommInitAll");
  }
}

CollectiveType collectiveOf(Function function) {
  switch (function) {
    case Function::AllReduce:
      return CollectiveType::AllReduce;
    case Function::ReduceScatter:
      return CollectiveType::ReduceScatter;
    case Function::Reduce:
      return CollectiveType::Reduce;
    case Function::AllGather:
      return CollectiveType::AllGather;
    case Function::AlltoAll:
      return CollectiveType::AllToAll;
    case Function::Broadcast:
    case Function::Bcast:
      return CollectiveType::Broadcast;
    case Function::Gather:
      return CollectiveType::Gather;
    case Function::Scatter:
      return CollectiveType::Scatter;
    case Function::Send:
    case Function::Recv:
    case Function::PutSignal:
    case Function::Signal:
    case Function::WaitSignal:
      return CollectiveType::SendReceive;
  }
  return CollectiveType::SendReceive;
}

void requireMessage(const ApiCall& api, DataType type) {
  // As the collectives allow: sums of sizes do not overflow either.
  if (api.count > std::numeric_limits<std::size_t>::max() / 4 / static_cast<std::size_t>(maxTeamSize) / sizeOf(type)) {
    throwInvalidArgument("count is larger than the address space; was it a negative number?");
  }
  const void* const data = api.function == Function::Send ? api.sent : api.received;
  if (api.count > 0 && data == nullptr) throwInvalidArgument("the buffer is null and count is not 0");
}

std::size_t bytesOf(const PendingCall& pending) {
  const CollectiveCall& call = pending.call;
  return std::max(call.count, call.receivedCount) * sizeOf(call.type);
}

}  // namespace

Comm::Comm(RankSet ranks, CommConfig config)
    : config_(std::move(config)),
      device_(currentDevice()),
      ranks_(std::move(ranks)),
      siblings_(SiblingResources::of(ranks_.key())),
      resources_(std::make_shared<Resources>()) {
  resources_->communicator = std::make_shared<Communicator>(ranks_.bootstrap());
  resources_->communicator->setWaitTimeout(env()->ncclTimeout);
  const GroupAgreement agreement(*ranks_.bootstrap(), "the communicator");
  const auto introductions = agreement.runStep("prepare a communicator", [&] {
    return toBytes(Introduction{TcpBootstrap::createUniqueId(), config_.maxBlocks, config_.signals,
                                mscclpp::detail::processId(), device_});
  });
  std::vector<Introduction> all;
  for (const auto& bytes : introductions) all.push_back(valueOf<Introduction>(bytes));
  requireOwnDevice(all);
  for (const Introduction& introduction : all) {
    successorIds_.push_back(introduction.successor);
    const int asked = introduction.maxBlocks;
    if (asked > 0 && (maxBlocks_ == 0 || asked < maxBlocks_)) maxBlocks_ = asked;
    signalNames_.contexts = std::max(signalNames_.contexts, introduction.signals.contexts);
    signalNames_.signals = std::max(signalNames_.signals, introduction.signals.signals);
  }
  if (ranks_.isOnOneHost()) {
    maxBlocks_ = std::min(maxBlocks_, kernels::mostBlocks);
    resources_->collectives = makeCollectives();
    suspendableBytes_ = resources_->collectives->memoryBytes();
  } else {
    forward();
  }
  log(LogLevel::Info, "rank " + std::to_string(rank()) + " of " + std::to_string(size()) + " on " +
                          (device_ == noDevice ? "the CPU" : "GPU " + std::to_string(device_)) +
                          (config_.name.empty() ? "" : ", " + config_.name) + ": ready, performed by " +
                          (forwarded_ ? "NCCL" : "mscclpp"));
}

Comm::~Comm() {
  // No call is in progress: each keeps this object alive.
  windows_.clear();
  // Peers that wait for this rank notice that it is gone although its memory stays, but not while it still works.
  waitForDevice(device_);
  ranks_.disconnect();
  siblings_->keep(std::move(resources_));
}

void Comm::forward() {
  const GroupAgreement agreement(*ranks_.bootstrap(), "a communicator of ranks on several hosts");
  const RealNccl* library = nullptr;
  const auto ids = agreement.runStep("load NCCL", [&] {
    library = RealNccl::find();
    if (library == nullptr) {
      throwInvalidUsage(
          "mscclpp serves the GPUs of one host: set MSCCLPP_NCCL_LIB_PATH to the path of NCCL's library "
          "(libnccl.so.2) on all ranks, which is then used for it");
    }
    ncclUniqueId id{};
    if (rank() == 0 && library->getUniqueId(&id) != ncclSuccess) throwInvalidUsage("NCCL cannot make a unique id");
    return toBytes(id);
  });
  forwarded_ = std::make_unique<ForwardedComm>(*library, valueOf<ncclUniqueId>(ids[0]), size(), rank(), config_);
}

PendingCall Comm::prepare(const ApiCall& api) const {
  requireReady();
  const auto type = findType(api.type);
  if (!type) throwInvalidArgument("unknown data type " + std::to_string(api.type));
  PendingCall pending{.function = api.function, .call = {.collective = collectiveOf(api.function)}};
  CollectiveCall& call = pending.call;
  call.type = *type;
  call.stream = api.stream;
  if (hasRoot(call.collective) || pending.isMessage()) {
    if (api.root < 0 || api.root >= size()) {
      throwInvalidArgument(std::string(pending.isMessage() ? "peer" : "root") + " is " + std::to_string(api.root) +
                           "; the ranks are 0 to " + std::to_string(size() - 1));
    }
  }
  if (hasReduction(call.collective)) {
    if (const auto op = findOperator(api.op)) {
      call.reduction = *op;
    } else {
      const PreMulSum created = operators_.at(api.op);
      if (created.type != api.type) throwInvalidArgument("the operator was created for another data type");
      pending.hasHostFactor = created.isOnHost;
      pending.factor = created.value;
      call.reduction = {ReduceOp::SUM, created.address,
                        created.isOnHost ? ScalarLocation::Host : ScalarLocation::Device};
    }
  }
  if (api.function == Function::Send) {
    call.input = api.sent;
    call.count = api.count;
    call.destination = api.root;
  } else if (api.function == Function::Recv) {
    call.output = api.received;
    call.receivedCount = api.count;
    call.origin = api.root;
  } else {
    call.input = api.sent;
    call.output = api.received;
    call.count = api.count;
    call.root = hasRoot(call.collective) ? api.root : 0;
  }
  if (pending.isMessage()) {
    requireMessage(api, *type);
  } else {
    kernels::requireValid(call, rank(), size());
  }
  if (api.config != nullptr) {
    const CallConfig config = readConfig(*api.config);
    call.algorithm = config.algorithm;
    if (!call.algorithm.empty() && !resources_->collectives->supports(call)) {
      std::string known;
      for (const std::string& name : resources_->collectives->algorithms(call.collective)) known += " " + name;
      throwInvalidArgument("algSelection is " + call.algorithm + ", which this call cannot use; there are:" + known);
    }
    pending.completionEvent = config.completionEvent;
  }
  return pending;
}

void Comm::requireReady() const {
  const std::lock_guard lock(mutex_);
  switch (state_) {
    case State::Ready:
      return;
    case State::Suspended:
      throwInvalidUsage("the communicator is suspended: call ncclCommResume first, on all ranks");
    case State::Finalized:
      throwInvalidUsage("the communicator was finalized: no more calls are allowed");
    case State::Revoked:
      throwInvalidUsage("the communicator was revoked: shrink or split it, or make a new one");
    case State::Aborted:
      throwInvalidUsage("the communicator was aborted: make a new one");
  }
}

void Comm::run(std::span<const PendingCall> calls) {
  const std::lock_guard lock(callMutex_);
  requireReady();
  const DeviceScope scope(device_);
  try {
    for (const PendingCall& pending : calls) {
      recorder_.add(pending);
      CallCounts::ofProcess().add(pending.function, Route::Native, bytesOf(pending));
      isCaptured_ = isCaptured_ || isCapturing(pending.call.stream);
    }
    if (calls.size() == 1) return runPhase(phaseOf(calls.front()), calls);
    std::vector<PendingCall> ordered(calls.begin(), calls.end());
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const PendingCall& a, const PendingCall& b) { return phaseOf(a) < phaseOf(b); });
    for (auto from = ordered.begin(); from != ordered.end();) {
      const Phase phase = phaseOf(*from);
      const auto to =
          std::find_if(from, ordered.end(), [phase](const PendingCall& call) { return phaseOf(call) != phase; });
      runPhase(phase, {from, to});
      from = to;
    }
  } catch (...) {
    asyncError();  // a failure of the communicator, and not of the arguments, is kept
    throw;
  }
}

Comm::Phase Comm::phaseOf(const PendingCall& call) {
  if (call.oneSided) return call.oneSided->isWait ? Phase::Waits : Phase::Puts;
  return call.isMessage() ? Phase::Messages : Phase::Collectives;
}

void Comm::runPhase(Phase phase, std::span<const PendingCall> calls) {
  if (phase == Phase::Puts || phase == Phase::Waits) {
    for (const PendingCall& pending : calls) runOneSided(pending);
    return;
  }
  const ProfilerRange range(nameOf(calls.front().function));
  const cudaStream_t stream = calls.front().call.stream;
  std::vector<cudaStream_t> others;
  for (const PendingCall& pending : calls) {
    const cudaStream_t other = pending.call.stream;
    if (other != stream && std::find(others.begin(), others.end(), other) == others.end()) others.push_back(other);
  }
  if (!others.empty()) waitForStreams(stream, others);
  if (phase == Phase::Collectives) {
    runCollectives(calls, stream);
  } else {
    runMessages(calls, stream);
  }
  if (!others.empty()) letStreamsWait(others, stream);
  for (const PendingCall& pending : calls) {
    if (pending.completionEvent != nullptr) recordEvent(pending.completionEvent, pending.call.stream);
  }
}

void Comm::runCollectives(std::span<const PendingCall> calls, cudaStream_t stream) {
  if (calls.size() == 1 && !calls.front().hasHostFactor) return resources_->collectives->run(calls.front().call);
  std::vector<CollectiveCall> all;
  for (const PendingCall& pending : calls) {
    CollectiveCall& call = all.emplace_back(pending.call);
    call.stream = stream;
    if (pending.hasHostFactor) call.reduction.factor = pending.factor.data();
  }
  resources_->collectives->run(all);
}

void Comm::runMessages(std::span<const PendingCall> calls, cudaStream_t stream) {
  std::vector<SentMessage> sends;
  std::vector<ReceivedMessage> receives;
  for (const PendingCall& pending : calls) {
    const CollectiveCall& call = pending.call;
    if (call.destination >= 0) {
      sends.push_back({call.input, call.count * sizeOf(call.type), call.destination});
    } else {
      receives.push_back({call.output, call.receivedCount * sizeOf(call.type), call.origin});
    }
  }
  kernels::exchange(*resources_->collectives, sends, receives, stream);
}

ncclWindow_t Comm::registerWindow(void* data, std::size_t bytes, int flags) {
  const std::lock_guard lock(callMutex_);
  requireReady();
  const DeviceScope scope(device_);
  // Most communicators have no window, and are to be made quickly: one-sided calls are set up with the first.
  if (resources_->oneSided == nullptr) {
    auto mover = std::make_unique<kernels::OneSidedMover>(*resources_->communicator, deviceType(),
                                                          signalNames_.contexts * signalNames_.signals);
    const std::lock_guard stateLock(mutex_);
    resources_->oneSided = std::move(mover);
  }
  auto window = std::make_shared<Window>(Window{data, std::nullopt, std::nullopt});
  if ((flags & windowSymmetric) != 0) {
    try {
      window->registration = resources_->collectives->registerBuffer(data, bytes);
    } catch (const Error& error) {
      if (error.getErrorCode() != ErrorCode::InvalidUsage) throw;
      throwInvalidUsage(std::string("a symmetric window is memory of ncclMemAlloc, of the same size on all ranks: ") +
                        error.what());
    }
  } else {
    window->mapped = RegisteredBuffer::tryRegister(*resources_->communicator, data, bytes);
  }
  const auto handle = newHandle<ncclWindow_t>();
  const std::lock_guard stateLock(mutex_);
  windows_.emplace(handle, std::move(window));
  return handle;
}

void Comm::deregisterWindow(ncclWindow_t window) {
  const std::lock_guard lock(callMutex_);
  const DeviceScope scope(device_);
  std::shared_ptr<Window> removed;
  const std::lock_guard stateLock(mutex_);
  removed = std::move(windows_.at(requireWindow(window)));
  windows_.erase(window);
}

void* Comm::windowAddress(ncclWindow_t window) const {
  const std::lock_guard lock(mutex_);
  return windows_.at(requireWindow(window))->data;
}

ncclWindow_t Comm::requireWindow(ncclWindow_t window) const {
  if (!windows_.contains(window)) throwInvalidArgument("the window is not registered with this communicator");
  return window;
}

}  // namespace mscclpp::nccl
