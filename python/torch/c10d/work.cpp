#include "work.hpp"

#include <thread>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> makeFuture(const c10::Device& device) {
  std::vector<c10::Device> devices;
  if (!device.is_cpu()) devices.push_back(device);
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

}  // namespace

Work::Work(int rank, std::uint64_t sequence, const Operation& operation)
    : c10d::Work(rank, operation.type, operation.name),
      sequence_(sequence),
      name_(operation.name),
      outputs_(operation.outputs),
      future_(makeFuture(operation.device)) {}

std::string Work::description() const {
  return std::string(name_) + ", call " + std::to_string(sequence_) + " of the process group";
}

void Work::throwTimeout(std::chrono::milliseconds timeout) const {
  throw Error(description() + ", has not completed within " + std::to_string(timeout.count()) +
                  " ms: another rank has not made it, or hangs; abort the group, or wait with a longer timeout",
              ErrorCode::Timeout);
}

void Work::complete(std::exception_ptr exception) {
  finish(exception);
  if (exception) {
    future_->setError(exception);
  } else {
    future_->markCompleted(at::IValue(outputs_));
  }
}

CpuWork::CpuWork(int rank, std::uint64_t sequence, const Operation& operation, std::chrono::milliseconds limit)
    : Work(rank, sequence, operation), limit_(limit) {}

void CpuWork::endPart(std::exception_ptr exception) {
  {
    const std::lock_guard lock(mutex_);
    if (exception && !failure_) failure_ = std::move(exception);
  }
  if (partsLeft_.fetch_sub(1) == 1) complete(failure_);
}

bool CpuWork::wait(std::chrono::milliseconds timeout) {
  const std::chrono::milliseconds limit = timeout > kNoTimeout ? timeout : limit_;
  std::unique_lock lock(mutex_);
  if (!cv_.wait_for(lock, limit, [this] { return completed_; })) throwTimeout(limit);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

GpuWork::GpuWork(int rank, std::uint64_t sequence, const Operation& operation, std::function<void()> check)
    : Work(rank, sequence, operation),
      device_(operation.device),
      isAsync_(operation.isAsync),
      isHostBarrier_(operation.isHostBarrier),
      check_(std::move(check)),
      end_(operation.device.type()) {}

GpuWork::~GpuWork() {
  if (!isAsync_ || !stream_) return;
  // Nobody has waited: the allocator must not give the memory away before the end.
  try {
    const c10::impl::VirtualGuardImpl gpu(device_.type());
    for (const at::Tensor& tensor : kept_) {
      if (tensor.defined() && tensor.device() == device_) {
        gpu.recordDataPtrOnStream(tensor.storage().data_ptr(), *stream_);
      }
    }
  } catch (...) {  // at the end of the process: nothing is given away any more
  }
}

void GpuWork::begin(const c10::Stream& stream, std::vector<at::Tensor> kept) {
  {
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    kept_ = std::move(kept);
    end_.record(stream);
  }
  // The future takes the end from the current stream.
  const c10::StreamGuard guard(stream);
  complete(nullptr);
}

bool GpuWork::hasEnded() const {
  const std::lock_guard lock(mutex_);
  return end_.query();
}

bool GpuWork::isCompleted() {
  return hasEnded() || exception() != nullptr;
}

bool GpuWork::isSuccess() const {
  return hasEnded() && exception() == nullptr;
}

std::exception_ptr GpuWork::exception() const {
  try {
    check_();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void GpuWork::synchronize() {
  if (!isAsync_) return;
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  std::vector<at::Tensor> ended;  // destroyed without the lock: memory may belong to a Python object
  const std::lock_guard lock(mutex_);
  end_.block(gpu.getStream(device_));
  ended.swap(kept_);
}

bool GpuWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (isHostBarrier_ || timeout > kNoTimeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!hasEnded()) {
      check_();
      if (timeout > kNoTimeout && std::chrono::steady_clock::now() > deadline) throwTimeout(timeout);
      std::this_thread::yield();
    }
  }
  check_();
  return true;
}

void CoalescedWork::join(c10::intrusive_ptr<c10d::Work> group) {
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

c10::intrusive_ptr<c10d::Work> CoalescedWork::group() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

bool CoalescedWork::isCompleted() {
  const auto joined = group();
  return joined && joined->isCompleted();
}

bool CoalescedWork::isSuccess() const {
  const auto joined = group();
  return joined && joined->isSuccess();
}

std::exception_ptr CoalescedWork::exception() const {
  const auto joined = group();
  return joined ? joined->exception() : nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const auto joined = group();
  return !joined || joined->wait(timeout);
}

void CoalescedWork::synchronize() {
  if (const auto joined = group()) joined->synchronize();
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  const auto joined = group();
  if (!joined) {
    throw Error("a call within a coalescing manager has no future before the manager ends", ErrorCode::InvalidUsage);
  }
  return joined->getFuture();
}

}  // namespace mscclpp::torch_c10d
