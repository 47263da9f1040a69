#include "cpu_executor.hpp"

#include <algorithm>
#include <future>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::torch_c10d {

namespace {

// wait() leaves the library's own timeout the time to say which rank is missing.
constexpr std::chrono::seconds reportTime{5};
// A message of the bootstrap has at most INT_MAX bytes.
constexpr std::size_t longestPart = std::size_t{1} << 30;

}  // namespace

CpuExecutor::CpuExecutor(const Ranks& ranks, std::chrono::milliseconds timeout)
    : messages_(ranks.messages),
      timeout_(timeout),
      collectives_(ranks.cpu, DeviceType::CPU),
      tensors_(messages_, [this](std::size_t bytes) { return registerMemory(bytes); }) {
  collectives_.setTimeout(timeout);
}

CpuExecutor::~CpuExecutor() {
  // Threads that still wait for a peer are woken until the last one has noticed.
  while (!finish(std::chrono::steady_clock::now() + std::chrono::milliseconds(20))) abort();
}

c10::intrusive_ptr<c10d::Work> CpuExecutor::submit(Operation operation, std::uint64_t sequence) {
  const bool hasTimeout = operation.timeout > kNoTimeout;
  const auto limit = hasTimeout ? operation.timeout : timeout_.load() + reportTime;
  auto work = c10::make_intrusive<CpuWork>(messages_.rank(), sequence, operation, limit);
  const auto shared = std::make_shared<Operation>(std::move(operation));
  const auto post = [&](TaskThread& thread, auto perform) {
    thread.post([work, shared, perform] {
      try {
        perform();
        work->endPart();
      } catch (...) {
        work->endPart(std::current_exception());
      }
    });
  };
  work->begin(static_cast<int>(shared->messages.size()) + 1);
  if (shared->hasCollectives()) {
    post(performer_, [this, shared] { collectives_.run(*shared, nullptr); });
  } else {
    work->endPart();
  }
  for (const Message& message : shared->messages) {
    const std::lock_guard lock(mutex_);
    post(message.isSend ? sender_ : receivers_[message.peer], [this, message] { transfer(message); });
  }
  return work;
}

void CpuExecutor::transfer(const Message& message) {
  if (isAborted_) throw Error("the process group was aborted: make a new one", ErrorCode::Aborted);
  Bootstrap& bootstrap = *messages_.bootstrap();
  std::size_t from = 0;
  do {  // a message without bytes is one, too
    const std::size_t size = std::min(message.bytes - from, longestPart);
    char* const data = static_cast<char*>(message.data) + from;
    if (message.isSend) {
      bootstrap.send(data, static_cast<int>(size), message.peer, message.tag);
    } else {
      bootstrap.recv(data, static_cast<int>(size), message.peer, message.tag);
    }
    from += size;
  } while (from < message.bytes);
}

at::Tensor CpuExecutor::allocate(std::int64_t elements, const at::TensorOptions& options) {
  return tensors_.allocate(elements, options, 0);
}

RegisteredBuffers::Handle CpuExecutor::registerBuffer(void* data, std::size_t bytes) {
  std::promise<RegisteredBuffers::Handle> promise;
  performer_.post([&] {
    try {
      promise.set_value(collectives_.registerBuffer(data, bytes));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  return promise.get_future().get();
}

RegisteredBlock CpuExecutor::registerMemory(std::size_t bytes) {
  const HostBuffer buffer(bytes);
  return {buffer.memory(), registerBuffer(buffer.data(), bytes)};
}

void CpuExecutor::exchangeSignals(kernels::ExchangePadSignals::Args args, std::chrono::milliseconds timeout) {
  args.wait = collectives_.signalWait(timeout);
  kernels::ExchangePadSignals::run(mscclpp::cpu::SerialGrid(), args);
  collectives_.check();
}

bool CpuExecutor::finish(std::chrono::steady_clock::time_point deadline) {
  if (!performer_.waitUntilIdle(deadline) || !sender_.waitUntilIdle(deadline)) return false;
  const std::lock_guard lock(mutex_);
  return std::all_of(receivers_.begin(), receivers_.end(),
                     [&](auto& receiver) { return receiver.second.waitUntilIdle(deadline); });
}

void CpuExecutor::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  collectives_.setTimeout(timeout);
}

void CpuExecutor::abort() noexcept {
  isAborted_ = true;
  collectives_.abort();
  messages_.leave();
  messages_.bootstrap()->abortBlocked();
}

void CpuExecutor::check() const {
  collectives_.check();
}

}  // namespace mscclpp::torch_c10d
