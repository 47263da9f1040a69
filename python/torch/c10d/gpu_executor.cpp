#include "gpu_executor.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/movers/gpu_signals.hpp"
#include "mscclpp/host/base/error.hpp"
#include "python/src/gpu_support.hpp"

namespace mscclpp::torch_c10d {

namespace {

// The blocks of a group's kernels, and of those between two ranks, which wait for other ranks while they are on the
// GPU: with 132 multiprocessors two pairs run beside the group's calls, whatever the order (kernels/gpu_budget.hpp).
// Further ones, and the calls of several groups, run one after another.
constexpr int blocksOfGroup = 64;
constexpr int blocksOfPair = 16;

CUstream_st* handleOf(const c10::Stream& stream) {
  return static_cast<CUstream_st*>(stream.native_handle());
}

}  // namespace

GpuExecutor::GpuExecutor(Ranks ranks, c10::Device device, std::chrono::milliseconds timeout)
    : ranks_(std::move(ranks)),
      device_(device),
      gpu_(device.type()),
      timeout_(timeout),
      main_(makeLane(ranks_.gpu, blocksOfGroup)),
      tensors_(ranks_.messages, [this](std::size_t bytes) { return registerMemory(bytes); }) {}

GpuExecutor::~GpuExecutor() {
  // The memory of the collectives is in use until the GPU is done with them; all of their waits are bounded.
  try {
    gpu_.synchronizeDevice(device_.index());
  } catch (...) {  // the driver has shut down
  }
}

GpuExecutor::Lane GpuExecutor::makeLane(nccl::RankSet ranks, int maxBlocks) const {
  auto made = std::make_shared<LazyCollectives>(std::move(ranks), DeviceType::GPU, maxBlocks);
  made->setTimeout(timeout_);
  constexpr bool isHighPriority = true;  // others wait for this rank
  return {std::move(made), gpu_.getStreamFromGlobalPool(device_, isHighPriority)};
}

GpuExecutor::Lane& GpuExecutor::laneTo(int peer) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = lanes_.find(peer);
    if (found != lanes_.end()) return found->second;
  }
  Lane made = makeLane(ranks_.pairWith(peer), blocksOfPair);
  const std::lock_guard lock(mutex_);
  if (isAborted_) made.collectives->abort();
  return lanes_.emplace(peer, std::move(made)).first->second;
}

void GpuExecutor::connect() {
  const std::lock_guard lock(callMutex_);
  const c10::DeviceGuard guard(device_);
  main_.collectives->get();
}

c10::intrusive_ptr<c10d::Work> GpuExecutor::submit(Operation operation, std::uint64_t sequence) {
  const std::lock_guard lock(callMutex_);
  const c10::DeviceGuard guard(device_);
  // A message outside of a batch, to another rank.
  const int own = ranks_.gpu.rank();
  const bool isPair = !operation.isBatch && operation.messages.size() == 1 && operation.messages.front().peer != own;
  const Lane& lane = isPair ? laneTo(operation.messages.front().peer) : main_;
  for (const Message& message : operation.messages) {
    const int peer = isPair ? (message.peer > own ? 1 : 0) : message.peer;
    if (message.isSend) {
      operation.sends.push_back({message.data, message.bytes, peer});
    } else {
      operation.receives.push_back({message.data, message.bytes, peer});
    }
  }
  const std::weak_ptr<LazyCollectives> watched = lane.collectives;
  auto work = c10::make_intrusive<GpuWork>(own, sequence, operation, [watched] {
    if (const auto collectives = watched.lock()) collectives->check();
  });
  const c10::Stream current = gpu_.getStream(device_);
  const c10::Stream stream = operation.isAsync ? lane.stream : current;
  if (operation.isAsync) {
    c10::Event ready(device_.type());
    ready.record(current);
    ready.block(stream);
  } else {
    const std::lock_guard stateLock(mutex_);
    lastCaller_ = current;
  }
  lane.collectives->run(operation, handleOf(stream));
  std::vector<at::Tensor> kept;
  if (operation.isAsync) {
    kept = std::move(operation.kept);
    kept.insert(kept.end(), operation.outputs.begin(), operation.outputs.end());
  }
  work->begin(stream, std::move(kept));
  return work;
}

at::Tensor GpuExecutor::allocate(std::int64_t elements, const at::TensorOptions& options) {
  return tensors_.allocate(elements, options, gpu_.getStream(device_).id());
}

RegisteredBuffers::Handle GpuExecutor::registerBuffer(void* data, std::size_t bytes) {
  const std::lock_guard lock(callMutex_);
  const c10::DeviceGuard guard(device_);
  return main_.collectives->registerBuffer(data, bytes);
}

RegisteredBlock GpuExecutor::registerMemory(std::size_t bytes) {
  auto allocated = [&] {
    const c10::DeviceGuard guard(device_);
    return python::allocateGpuMemory(bytes, python::GpuBufferGranularity::MultiCastMinimum);
  }();
  auto registration = registerBuffer(allocated.memory.get(), bytes);
  return {std::move(allocated.memory), std::move(registration)};
}

void GpuExecutor::exchangeSignals(kernels::ExchangePadSignals::Args args, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(callMutex_);
  const c10::DeviceGuard guard(device_);
  main_.collectives->check();
  args.wait = main_.collectives->signalWait(timeout);
  const c10::Stream current = gpu_.getStream(device_);
  {
    const std::lock_guard stateLock(mutex_);
    lastCaller_ = current;
  }
  kernels::gpu::enqueuePadSignals(args, handleOf(current));
}

bool GpuExecutor::finish(std::chrono::steady_clock::time_point deadline) {
  std::vector<c10::Stream> streams{main_.stream};
  {
    const std::lock_guard lock(mutex_);
    if (lastCaller_) streams.push_back(*lastCaller_);
    for (const auto& [peer, lane] : lanes_) streams.push_back(lane.stream);
  }
  for (const c10::Stream& stream : streams) {
    while (!stream.query()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
  }
  return true;
}

void GpuExecutor::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(callMutex_);
  timeout_ = timeout;
  main_.collectives->setTimeout(timeout);
}

void GpuExecutor::abort() noexcept {
  const std::lock_guard lock(mutex_);
  isAborted_ = true;
  main_.collectives->abort();
  for (auto& [peer, lane] : lanes_) lane.collectives->abort();
  ranks_.messages.bootstrap()->abortBlocked();
}

void GpuExecutor::check() const {
  main_.collectives->check();
  const std::lock_guard lock(mutex_);
  for (const auto& [peer, lane] : lanes_) lane.collectives->check();
}

}  // namespace mscclpp::torch_c10d
