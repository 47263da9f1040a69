#include "kernels/movers/one_sided_mover.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/movers/gpu_signals.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

namespace {

constexpr std::size_t lineWords = 16;  // of 128 bytes

std::size_t countersOf(int ranks, std::size_t counters) {
  const std::size_t all = static_cast<std::size_t>(ranks) * counters;
  return (all + lineWords - 1) / lineWords * lineWords;
}

}  // namespace

// The counters that the peers write, those of consumed signals, and a line for the word that says that a wait failed.
std::size_t OneSidedMover::wordsOf(int ranks, int counters) {
  return 2 * countersOf(ranks, static_cast<std::size_t>(counters)) + lineWords;
}

OneSidedMover::OneSidedMover(Communicator& communicator, DeviceType deviceType, int counters)
    : onGpu_(deviceType == DeviceType::GPU),
      counters_(static_cast<std::size_t>(counters)),
      memory_(communicator, wordsOf(communicator.bootstrap()->getNranks(), counters) * sizeof(std::uint64_t),
              deviceType),
      monitor_(communicator, deviceType) {
  const detail::GroupSetup setup(communicator);
  const detail::GroupAgreement agreement(*communicator.bootstrap(), "one-sided messages");
  agreement.runStep("load its kernels", [&] {
    if (onGpu_) gpu::loadSignalKernels();
    return std::vector<char>();
  });
}

void OneSidedMover::throwIfFailed() const {
  monitor_.check();
}

SemaphoreHandle OneSidedMover::semaphore(int peer, int counter) const {
  const auto placeOf = [&](int rank) {
    return static_cast<std::size_t>(rank) * counters_ + static_cast<std::size_t>(counter);
  };
  auto* const own = static_cast<std::uint64_t*>(memory_.local());
  auto* const remote = static_cast<std::uint64_t*>(memory_.peer(peer));
  SemaphoreHandle handle{};
  handle.inboundToken = own + placeOf(peer);
  handle.remoteInboundToken = remote + placeOf(memory_.rank());
  handle.expectedInboundToken = own + countersOf(memory_.nRanks(), counters_) + placeOf(peer);
  handle.waitControl = monitor_.deviceControl();
  handle.waitTimeout = static_cast<std::uint64_t>(monitor_.timeout().count());
  handle.rank = memory_.rank();
  handle.peer = peer;
  return handle;
}

std::uint64_t* OneSidedMover::stopped() const {
  return static_cast<std::uint64_t*>(memory_.local()) + 2 * countersOf(memory_.nRanks(), counters_);
}

void OneSidedMover::put(void* to, const void* from, std::size_t bytes, CUstream_st* stream) {
  throwIfFailed();
  if (bytes == 0) return;
  if (onGpu_) {
    gpu::enqueueCopy(to, from, bytes, stream);
  } else {
    std::memmove(to, from, bytes);
  }
}

void OneSidedMover::signal(int peer, int counter, CUstream_st* stream) {
  throwIfFailed();
  const SendSignal::Args args{semaphore(peer, counter), stopped()};
  if (onGpu_) {
    gpu::enqueueSignal(args, stream);
  } else {
    SendSignal::run(cpu::SerialGrid(), args);
  }
}

void OneSidedMover::wait(std::span<const AwaitedSignals> awaited, CUstream_st* stream) {
  throwIfFailed();
  while (!awaited.empty()) {
    const auto part = awaited.first(std::min<std::size_t>(awaited.size(), AwaitSignals::mostEntries));
    awaited = awaited.subspan(part.size());
    AwaitSignals::Args args{};
    args.stopped = stopped();
    for (const AwaitedSignals& each : part) {
      args.entries[args.count++] = {semaphore(each.peer, each.counter), each.signals};
    }
    if (onGpu_) {
      gpu::enqueueWait(args, stream);
    } else {
      AwaitSignals::run(cpu::SerialGrid(), args);
      throwIfFailed();
    }
  }
}

}  // namespace mscclpp::kernels
