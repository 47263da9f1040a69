#include "mscclpp/host/wait_monitor.hpp"

#include <chrono>
#include <new>
#include <string>
#include <thread>

#include "communicator_state.hpp"
#include "gpu_backend.hpp"
#include "lost_rank.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "wait_watch.hpp"

namespace mscclpp {

namespace detail {

namespace {

// Between claiming the record and publishing it a waiter only fills some words.
constexpr std::chrono::milliseconds recordPatience{200};

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

const char* nameOf(WaitOperation operation) {
  switch (operation) {
    case WaitOperation::Packet:
      return "a packet";
    case WaitOperation::Semaphore:
      return "a signal";
    case WaitOperation::TeamBarrier:
      return "a team barrier";
    case WaitOperation::GridBarrier:
      return "a grid barrier";
    case WaitOperation::Progress:
      return "progress in a pipeline";
    case WaitOperation::Fifo:
      return "a FIFO";
    case WaitOperation::Barrier:
      return "a barrier in shared memory";
    case WaitOperation::FifoTooSmall:
      return "room for a whole warp in a FIFO that has fewer slots than the warp has lanes";
    case WaitOperation::Unknown:
      break;
  }
  return "something unnamed";
}

std::string describe(const WaitRecord& record) {
  std::string text = "rank " + std::to_string(record.rank) + ", block " + std::to_string(record.block) +
                     ", waited for " + nameOf(record.operation);
  if (record.peer >= 0) text += " of rank " + std::to_string(record.peer);
  text += record.outcome == WaitOutcome::Deadline ? " past its deadline" : " until it was aborted";
  text += ": expected " + std::to_string(record.expected) + ", saw " + std::to_string(record.seen) + " after " +
          std::to_string(record.waitedNanoseconds / 1000000) + " ms";
  return text;
}

}  // namespace

WaitWatch::WaitWatch(DeviceType where) : control_(makeControl(where)) {}

void WaitWatch::abort() noexcept {
  std::atomic_ref(control_->abort).store(1, std::memory_order_release);
}

void WaitWatch::abort(const RankFailure& failure) noexcept {
  {
    std::lock_guard lock(mutex_);
    keepFirst(failure_, failure);
  }
  abort();
}

bool WaitWatch::failed() const noexcept {
  return load(control_->abort) != 0 || load(control_->expired) != 0;
}

void WaitWatch::check() const {
  if (!failed()) return;
  const auto deadline = std::chrono::steady_clock::now() + recordPatience;
  const bool expired = load(control_->expired) != 0 || load(control_->record.state) != 0;
  while (expired && load(control_->record.state) != 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  const bool recorded = load(control_->record.state) == 2;
  const std::string record = recorded ? describe(control_->record) : "";
  const std::string details = recorded ? " (" + record + ")" : "";

  std::optional<RankFailure> lost;
  {
    std::lock_guard lock(mutex_);
    lost = failure_;
  }
  if (lost) throw Error(describe(*lost) + details, ErrorCode::RemoteError);
  if (recorded && control_->record.outcome == WaitOutcome::Deadline) {
    throw Error(record + "; check that every rank makes the same calls with the same sizes", ErrorCode::Timeout);
  }
  if (recorded || !expired) throw Error("the communication was aborted" + details, ErrorCode::Aborted);
  throw Error("a wait passed its deadline and left no record", ErrorCode::Timeout);
}

}  // namespace detail

WaitMonitor::WaitMonitor(DeviceType where) : watch_(std::make_shared<detail::WaitWatch>(where)) {}

WaitMonitor::WaitMonitor(Communicator& communicator, DeviceType where) : WaitMonitor(where) {
  communicator.state_->watch(watch_);
}

WaitMonitor::~WaitMonitor() = default;

WaitControl* WaitMonitor::deviceControl() const noexcept {
  return watch_->control();
}
void WaitMonitor::abort() noexcept {
  watch_->abort();
}
bool WaitMonitor::failed() const noexcept {
  return watch_->failed();
}
void WaitMonitor::check() const {
  watch_->check();
}

}  // namespace mscclpp
