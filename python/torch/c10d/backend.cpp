// The life of a backend: connection, splits, groups of calls, and how it ends.
#include "backend.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "interpreter_lock.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tensors.hpp"

namespace mscclpp::torch_c10d {

namespace {

constexpr std::chrono::seconds longestShutdown{10};

/// The backends of the process. One may end while it shuts down others.
struct OpenBackends {
  std::recursive_mutex mutex;
  std::set<Backend*> all;
};
OpenBackends& openBackends() {
  static auto* const open = new OpenBackends;  // never destroyed: groups may end with static objects
  return *open;
}

}  // namespace

Backend::Options::Options(std::chrono::milliseconds timeLimit) : c10d::Backend::Options("mscclpp", timeLimit) {}

Backend::Backend(c10d::Store& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      ranks_(Ranks::connect(store, rank, size, options_->timeout)) {
  init();
  OpenBackends& open = openBackends();
  const std::lock_guard lock(open.mutex);
  open.all.insert(this);
}

Backend::Backend(Ranks ranks, c10::intrusive_ptr<Options> options)
    : c10d::Backend(ranks.cpu.rank(), ranks.cpu.size()), options_(std::move(options)), ranks_(std::move(ranks)) {
  init();
  OpenBackends& open = openBackends();
  const std::lock_guard lock(open.mutex);
  open.all.insert(this);
}

Backend::~Backend() {
  const WithoutInterpreterLock unlocked;
  {
    OpenBackends& open = openBackends();
    const std::lock_guard lock(open.mutex);
    open.all.erase(this);
  }
  try {
    shutdown();
  } catch (...) {  // what failed was reported to the calls
  }
}

const std::string Backend::getBackendName() const {
  return "mscclpp";
}

std::shared_ptr<Executor> Backend::executorOf(const c10::Device& device) {
  if (!device.is_cpu()) return gpuExecutor(device);
  const std::lock_guard lock(mutex_);
  if (!ranks_) throw Error("the process group was destroyed", ErrorCode::Aborted);
  if (!cpu_) cpu_ = std::make_shared<CpuExecutor>(*ranks_, options_->timeout);
  if (isAborted_) cpu_->abort();
  return cpu_;
}

std::shared_ptr<GpuExecutor> Backend::gpuExecutor(const c10::Device& device) {
  if (!device.is_cuda()) {
    throw Error("mscclpp has no collectives for tensors on " + device.str() + ": use the CPU or a CUDA device",
                ErrorCode::InvalidUsage);
  }
  const std::lock_guard lock(mutex_);
  if (!ranks_) throw Error("the process group was destroyed", ErrorCode::Aborted);
  if (!gpu_) gpu_ = std::make_shared<GpuExecutor>(*ranks_, device, options_->timeout);
  if (gpu_->device() != device) {
    throw Error("the process group uses " + gpu_->device().str() + " on this rank, and the tensor is on " +
                    device.str() + ": a rank has one GPU, call torch.cuda.set_device() first",
                ErrorCode::InvalidUsage);
  }
  if (isAborted_) gpu_->abort();
  return gpu_;
}

std::vector<std::shared_ptr<Executor>> Backend::executors() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Executor>> all;
  if (cpu_) all.push_back(cpu_);
  if (gpu_) all.push_back(gpu_);
  return all;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    options_->timeout = timeout;
    if (ranks_) ranks_->setTimeout(timeout);
  }
  for (const auto& executor : executors()) executor->setTimeout(timeout);
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (device.is_cuda()) gpuExecutor(device)->connect();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  if (std::find(ranks.begin(), ranks.end(), getRank()) == ranks.end()) return nullptr;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= getSize() || std::count(ranks.begin(), ranks.end(), rank) != 1) {
      throw Error("split: the ranks are different ones, from 0 to " + std::to_string(getSize() - 1),
                  ErrorCode::InvalidUsage);
    }
  }
  std::optional<Ranks> parent;
  {
    const std::lock_guard lock(mutex_);
    parent = ranks_;
  }
  if (!parent || isAborted_) throw Error("the process group was destroyed or aborted", ErrorCode::Aborted);
  auto own = c10::make_intrusive<Options>(options ? options->timeout : options_->timeout);
  if (options) {
    own->group_name = options->group_name;
    own->global_ranks_in_group = options->global_ranks_in_group;
  }
  return c10::intrusive_ptr<c10d::Backend>(
      c10::intrusive_ptr<Backend>::reclaim(new Backend(parent->subset(ranks), std::move(own))));
}

c10d::ErrorType Backend::getError() {
  try {
    for (const auto& executor : executors()) executor->check();
    return isAborted_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  } catch (const Error& error) {
    switch (error.getErrorCode()) {
      case ErrorCode::Timeout:
        return c10d::ErrorType::TIMEOUT;
      case ErrorCode::RemoteError:
        return c10d::ErrorType::REMOTE_ERROR;
      default:
        return c10d::ErrorType::COMM_ERROR;
    }
  } catch (const BaseError&) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

void Backend::abort() {
  isAborted_ = true;
  const auto all = executors();
  for (const auto& executor : all) executor->abort();
  const std::lock_guard lock(mutex_);
  if (ranks_) ranks_->leave();
}

void Backend::shutdown() {
  const auto deadline = std::chrono::steady_clock::now() + longestShutdown;
  for (const auto& executor : executors()) {
    bool hasEnded = false;
    try {
      hasEnded = executor->finish(deadline);
    } catch (const std::exception&) {  // of the device, which the calls have reported
    }
    if (!hasEnded) executor->abort();
  }
  // Destroyed without the lock: that waits for their threads, which may call this object.
  std::shared_ptr<CpuExecutor> cpu;
  std::shared_ptr<GpuExecutor> gpu;
  std::optional<Ranks> ranks;
  const std::lock_guard lock(mutex_);
  cpu.swap(cpu_);
  gpu.swap(gpu_);
  ranks.swap(ranks_);
}

void Backend::shutdownAll() {
  OpenBackends& open = openBackends();
  const std::lock_guard lock(open.mutex);
  for (Backend* const backend : std::set<Backend*>(open.all)) {
    if (open.all.contains(backend)) backend->shutdown();
  }
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  c10::Device device = options.device();
  if (!device.is_cpu() && !device.has_index()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  return executorOf(device)->allocate(size, options.device(device));
}

void Backend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  if (batch_) throw Error("coalescing has been started already", ErrorCode::InvalidUsage);
  batch_.emplace();
  batch_->type = c10d::OpType::COALESCED;
  batch_->name = "mscclpp:coalesced";
  batch_->isBatch = true;
}

Backend::Works Backend::endCoalescing() {
  Operation batch;
  std::vector<c10::intrusive_ptr<CoalescedWork>> works;
  {
    const std::lock_guard lock(mutex_);
    if (!batch_) throw Error("coalescing has not been started", ErrorCode::InvalidUsage);
    batch = std::move(*batch_);
    batch_.reset();
    works.swap(batchWorks_);
  }
  const auto work = submit(std::move(batch));
  for (const auto& each : works) each->join(work);
  return work;
}

Backend::Works Backend::submit(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    if (batch_) {
      if (batch_->isEmpty()) batch_->device = operation.device;
      if (batch_->device != operation.device) {
        throwWrong(operation, "the calls of a coalescing manager are on different devices");
      }
      auto work = c10::make_intrusive<CoalescedWork>(getRank(), operation.type);
      batch_->append(std::move(operation));
      batchWorks_.push_back(work);
      return work;
    }
  }
  const auto executor = executorOf(operation.device);
  return executor->submit(std::move(operation), ++sequence_);
}

}  // namespace mscclpp::torch_c10d
