// One-sided calls of a communicator: copies into windows of peers, signals, and waits for them.
#include <limits>
#include <string>
#include <utility>

#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/element_type.hpp"
#include "kernels/nccl/profiler_range.hpp"

namespace mscclpp::nccl {

namespace {

PendingCall pendingOf(const ApiCall& api, OneSidedCall&& oneSided) {
  PendingCall pending{.function = api.function, .call = {.collective = CollectiveType::SendReceive}};
  pending.call.stream = api.stream;
  pending.call.input = oneSided.from;
  pending.call.type = DataType::UINT8;
  pending.call.count = oneSided.bytes;
  pending.call.destination = oneSided.peer;
  pending.oneSided = std::make_shared<const OneSidedCall>(std::move(oneSided));
  return pending;
}

}  // namespace

void Comm::requirePeer(int peer) const {
  if (peer >= 0 && peer < size()) return;
  throwInvalidArgument("peer is " + std::to_string(peer) + "; the ranks are 0 to " + std::to_string(size() - 1));
}

const kernels::OneSidedMover* Comm::findOneSided() const {
  const std::lock_guard lock(mutex_);
  return resources_->oneSided.get();
}

int Comm::counterOf(SignalName signal) const {
  if (findOneSided() == nullptr) {
    throwInvalidUsage(
        "the communicator has no window: signals need the set-up that its first ncclCommWindowRegister does");
  }
  const auto require = [](const char* name, int value, int number, const char* field) {
    if (value >= 0 && value < number) return;
    throwInvalidArgument(std::string(name) + " is " + std::to_string(value) + "; the communicator has 0 to " +
                         std::to_string(number - 1) + ": set " + field + " in its config for more");
  };
  require("ctx", signal.context, signalNames_.contexts, "numRmaCtx");
  require("sigIdx", signal.index, signalNames_.signals, "numRmaSig");
  return signal.context * signalNames_.signals + signal.index;
}

PendingCall Comm::preparePut(const ApiCall& api, ncclWindow_t window, std::size_t offset, SignalName signal) const {
  requireReady();
  requirePeer(api.root);
  const auto type = findType(api.type);
  if (!type) throwInvalidArgument("unknown data type " + std::to_string(api.type));
  if (api.count > std::numeric_limits<std::size_t>::max() / sizeOf(*type)) {
    throwInvalidArgument("count is larger than the address space; was it a negative number?");
  }
  OneSidedCall call;
  call.bytes = api.count * sizeOf(*type);
  call.peer = api.root;
  call.counter = counterOf(signal);
  call.from = api.sent;
  if (call.bytes > 0 && call.from == nullptr) throwInvalidArgument("localbuff is null and count is not 0");
  std::shared_ptr<const Window> target;
  {
    const std::lock_guard lock(mutex_);
    target = windows_.at(requireWindow(window));
  }
  const RegisteredBuffer* buffer = target->buffer();
  if (buffer == nullptr) {
    throwInvalidUsage(
        "the peers cannot map the memory of this window: allocate it with ncclMemAlloc (on GPUs, cudaMalloc serves "
        "too) on all ranks");
  }
  const std::size_t bytes = buffer->memory(call.peer).size();
  if (offset > bytes || call.bytes > bytes - offset) {
    throwInvalidArgument(std::to_string(call.bytes) + " bytes at offset " + std::to_string(offset) +
                         " do not lie in the window of rank " + std::to_string(call.peer) + ", which has " +
                         std::to_string(bytes) + " bytes");
  }
  if (call.bytes > 0) call.to = buffer->window().at(call.peer, offset);
  call.window = std::move(target);
  return pendingOf(api, std::move(call));
}

PendingCall Comm::prepareSignal(const ApiCall& api, SignalName signal) const {
  requireReady();
  requirePeer(api.root);
  OneSidedCall call;
  call.peer = api.root;
  call.counter = counterOf(signal);
  return pendingOf(api, std::move(call));
}

PendingCall Comm::prepareWait(const ApiCall& api, std::span<const ncclWaitSignalDesc_t> awaited) const {
  requireReady();
  OneSidedCall call;
  call.isWait = true;
  for (const ncclWaitSignalDesc_t& each : awaited) {
    requirePeer(each.peer);
    const int counter = counterOf({each.ctx, each.sigIdx});
    if (each.opCnt < 0) throwInvalidArgument("opCnt is " + std::to_string(each.opCnt) + "; it must not be negative");
    if (each.opCnt > 0) call.awaited.push_back({each.peer, counter, static_cast<std::uint64_t>(each.opCnt)});
  }
  if (!awaited.empty()) call.peer = awaited.front().peer;  // for the record of calls
  return pendingOf(api, std::move(call));
}

void Comm::runOneSided(const PendingCall& pending) {
  const ProfilerRange range(nameOf(pending.function));
  const OneSidedCall& call = *pending.oneSided;
  kernels::OneSidedMover& mover = *resources_->oneSided;
  const cudaStream_t stream = pending.call.stream;
  if (call.isWait) return mover.wait(call.awaited, stream);
  mover.put(call.to, call.from, call.bytes, stream);
  mover.signal(call.peer, call.counter, stream);
}

}  // namespace mscclpp::nccl
