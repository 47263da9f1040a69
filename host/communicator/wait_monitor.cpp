#include "mscclpp/host/communicator/wait_monitor.hpp"

#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/communicator/communicator_state.hpp"
#include "host/communicator/wait_monitor_state.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/basic/wait_error.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

namespace detail {

namespace {

// Between claiming the record and publishing it, a waiter only fills in a few words.
constexpr std::chrono::milliseconds recordTimeout{200};

std::uint32_t load(std::uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

std::shared_ptr<WaitControl> makeControl(DeviceType where) {
  switch (where) {
    case DeviceType::CPU:
      return std::make_shared<WaitControl>();
    case DeviceType::GPU: {
      auto memory = allocateGpuVisibleHostMemory(sizeof(WaitControl));
      auto* control = new (memory.get()) WaitControl{};
      return {std::move(memory), control};
    }
    case DeviceType::Unknown:
      break;
  }
  throw Error("WaitMonitor: the device type must be DeviceType::CPU or DeviceType::GPU", ErrorCode::InvalidUsage);
}

// Notifies waiting code that `rank` has left.
void markLeft(WaitControl& control, int rank) {
  if (rank < 0 || rank >= WaitControl::maxLeftRanks) return;
  std::atomic_ref word(control.leftRanks[rank / 32]);
  word.fetch_or(1U << (rank % 32), std::memory_order_relaxed);
  std::atomic_ref(control.anyLeft).store(1, std::memory_order_release);
}

// The rank because of which a wait ended. If the wait was for all ranks, it is the first that left.
int departedPeerOf(const WaitRecord& record, const FailureState& failures) {
  if (record.peer >= 0) return record.peer;
  const std::vector<int> left = failures.leftRanks();
  return left.empty() ? -1 : left.front();
}

}  // namespace

WaitMonitorState::WaitMonitorState(DeviceType where, std::shared_ptr<FailureState> failures)
    : control_(makeControl(where)),
      failures_(std::move(failures)),
      failureSubscription_(failures_->onFailure([this](const RankFailure&) { abort(); })),
      departureSubscription_(failures_->onDeparture([this](int rank) { markLeft(*control_, rank); })) {}

WaitMonitorState::~WaitMonitorState() {
  failures_->unsubscribe(failureSubscription_);
  failures_->unsubscribe(departureSubscription_);
}

void WaitMonitorState::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(abortMutex_);
  if (load(control_->abort) != 0) return;
  try {
    abortReason_ = reason;
  } catch (const std::bad_alloc&) {  // the waits end without it
  }
  std::atomic_ref(control_->abort).store(1, std::memory_order_release);
}

std::string WaitMonitorState::abortReason() const {
  const std::lock_guard lock(abortMutex_);
  return abortReason_;
}

bool WaitMonitorState::failed() const noexcept {
  return load(control_->abort) != 0 || load(control_->expired) != 0;
}

void WaitMonitorState::check() const {
  if (!failed()) return;
  const auto deadline = std::chrono::steady_clock::now() + recordTimeout;
  const bool expired = load(control_->expired) != 0 || load(control_->record.state) != 0;
  while (expired && load(control_->record.state) != 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  const bool recorded = load(control_->record.state) == 2;
  const std::string record = recorded ? sentenceOf(control_->record) : "";
  const std::string details = recorded ? " (" + record + ")" : "";
  const WaitOutcome outcome = recorded ? control_->record.outcome : WaitOutcome::Pending;

  if (recorded && isInvalidCall(control_->record)) throw Error(record, ErrorCode::InvalidUsage);
  // A wait that ended because a rank left came before the failure of another rank; otherwise that failure would have
  // ended it.
  if (outcome == WaitOutcome::PeerLeft) {
    throw Error(describeDeparture(departedPeerOf(control_->record, *failures_)) + details, ErrorCode::RemoteError);
  }
  if (const auto failure = failures_->failure(); failure && failures_->errorCode() == ErrorCode::RemoteError) {
    throw Error(describe(*failure) + details, ErrorCode::RemoteError);
  }
  if (outcome == WaitOutcome::Deadline) {
    throw Error(record + "; check that every rank makes the same calls with the same sizes", ErrorCode::Timeout);
  }
  if (const std::string reason = abortReason(); !reason.empty()) throw Error(reason + details, ErrorCode::Aborted);
  if (recorded || !expired) throw Error("the communication was aborted" + details, ErrorCode::Aborted);
  throw Error("a wait timed out and left no record", ErrorCode::Timeout);
}

}  // namespace detail

WaitMonitor::WaitMonitor(DeviceType where)
    : WaitMonitor(where, std::make_shared<detail::FailureState>(), env()->waitTimeout) {}

WaitMonitor::WaitMonitor(Communicator& communicator, DeviceType where)
    : WaitMonitor(where, communicator.state_->failures(), communicator.state_->waitTimeout()) {}

WaitMonitor::WaitMonitor(DeviceType where, const std::shared_ptr<detail::FailureState>& failures,
                         std::chrono::nanoseconds timeout)
    : state_(std::make_shared<detail::WaitMonitorState>(where, failures)), timeout_(timeout) {}

std::shared_ptr<WaitMonitor> WaitMonitor::ofTeam(Communicator& communicator, DeviceType where,
                                                 std::shared_ptr<WaitMonitor> given) {
  if (given != nullptr) return given;
  auto monitor = std::make_shared<WaitMonitor>(communicator, where);
  monitor->setTeamIsJob();
  return monitor;
}

WaitMonitor::~WaitMonitor() = default;

WaitControl* WaitMonitor::deviceControl() const noexcept {
  return state_->control();
}
void WaitMonitor::abort(const std::string& reason) noexcept {
  state_->abort(reason);
}
bool WaitMonitor::failed() const noexcept {
  return state_->failed();
}
void WaitMonitor::check() const {
  state_->check();
}
void WaitMonitor::setTeamIsJob() noexcept {
  std::atomic_ref(state_->control()->teamIsJob).store(1, std::memory_order_relaxed);
}
bool WaitMonitor::hasLeft(int rank) const noexcept {
  return state_->hasLeft(rank);
}

}  // namespace mscclpp
