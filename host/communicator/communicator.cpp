#include "mscclpp/host/communicator/communicator.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "host/communicator/communicator_state.hpp"
#include "host/transport/connection_base.hpp"
#include "host/transport/context_state.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

// A message that a future of this communicator is to receive, and its result.
class Communicator::State::PendingReceive {
 public:
  virtual ~PendingReceive() = default;

  /// Converts the message to the future's result, or stores the exception.
  virtual void finish(const Bytes& bytes) noexcept = 0;

  bool done = false;           // guarded by the queue's mutex, like `waitForFuture` while the receive is pending
  std::exception_ptr failure;  // written before `done`
  // Waits for the future that was returned for this receive, once it is done. It owns the future, which owns this
  // object and the state, so it is dropped when the receive is done or the communicator is destroyed.
  std::function<void()> waitForFuture;
};

template <class Finish>
class Communicator::State::TypedReceive final : public PendingReceive {
 public:
  using Result = std::invoke_result_t<Finish&, const Bytes&>;

  explicit TypedReceive(Finish finish) : finish_(std::move(finish)) {}

  void finish(const Bytes& bytes) noexcept override {
    try {
      result_ = (*finish_)(bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    finish_.reset();
  }
  /// To be called once, when done.
  Result takeResult() {
    if (failure) std::rethrow_exception(failure);
    return std::move(*result_);
  }

 private:
  std::optional<Finish> finish_;
  std::optional<Result> result_;
};

// The pending receives of one (rank, tag). They complete in order: one thread at a time receives for the first of them,
// whichever receive it is waiting for.
struct Communicator::State::ReceiveQueue {
  std::mutex mutex;  // not held while a message is received
  detail::ForkSafeCondition changed;
  bool isReceiving = false;
  std::deque<std::shared_ptr<PendingReceive>> pending;
};

Communicator::State::State(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
    : bootstrap_(std::move(bootstrap)), context_(context ? std::move(context) : Context::create()) {
  if (!bootstrap_) throw Error("Communicator: the bootstrap must not be null", ErrorCode::InvalidUsage);
  failureDetector_ = dynamic_cast<FailureDetector*>(bootstrap_.get());
  if (failureDetector_ != nullptr) {
    const auto failures = failures_;
    failureSubscription_ =
        failureDetector_->onFailure([failures](const RankFailure& failure) { failures->fail(failure); });
    laterFailureSubscription_ =
        failureDetector_->onLaterFailure([failures](const RankFailure& failure) { failures->failLater(failure); });
    departureSubscription_ = failureDetector_->onDeparture([failures](int rank) { failures->leave(rank); });
  }
}

Communicator::State::~State() {
  if (failureDetector_ == nullptr) return;
  failureDetector_->unsubscribe(failureSubscription_);
  failureDetector_->unsubscribe(laterFailureSubscription_);
  failureDetector_->unsubscribe(departureSubscription_);
}

void Communicator::State::throwIfAborted() const {
  if (failures_->isAborted()) throw Error("the communicator was aborted; make a new one", ErrorCode::Aborted);
}

void Communicator::State::checkRankAndTag(int rank, int tag) const {
  if (rank < 0 || rank >= bootstrap_->getNranks()) {
    throw Error(
        "Communicator: there is no rank " + std::to_string(rank) + " among " + std::to_string(bootstrap_->getNranks()),
        ErrorCode::InvalidUsage);
  }
  if (tag < 0) throw Error("Communicator: a tag must not be negative", ErrorCode::InvalidUsage);
}

void Communicator::State::send(const Bytes& bytes, int rank, int tag) {
  checkRankAndTag(rank, tag);
  if (rank != bootstrap_->getRank()) {
    const BootstrapCall call(*this);
    return bootstrap_->send(bytes, rank, tag);
  }
  {
    std::lock_guard lock(selfMutex_);
    selfMessages_[tag].push_back(bytes);
  }
  selfArrived_->notify_all();
}

void Communicator::State::retain(RegisteredMemory memory) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  while (!retainedMemories_.empty() && now - retainedMemories_.front().first > env()->bootstrapTimeout)
    retainedMemories_.pop_front();
  retainedMemories_.emplace_back(now, std::move(memory));
}

Communicator::State::ReceiveQueue& Communicator::State::queueOf(const RankAndTag& rankAndTag) {
  checkRankAndTag(rankAndTag.first, rankAndTag.second);
  std::lock_guard lock(mutex_);
  auto& queue = receiveQueues_[rankAndTag];
  if (!queue) queue = std::make_unique<ReceiveQueue>();
  return *queue;
}

template <class Finish>
auto Communicator::State::receive(const std::shared_ptr<State>& state, int rank, int tag, Finish finish)
    -> std::shared_future<std::invoke_result_t<Finish&, const Bytes&>> {
  const RankAndTag rankAndTag{rank, tag};
  ReceiveQueue& queue = state->queueOf(rankAndTag);
  const auto receive = std::make_shared<TypedReceive<Finish>>(std::move(finish));
  const auto future = std::async(std::launch::deferred, [state, &queue, rankAndTag, receive] {
                        state->complete(queue, rankAndTag, *receive);
                        return receive->takeResult();
                      }).share();
  receive->waitForFuture = [future] { future.wait(); };
  std::lock_guard lock(queue.mutex);
  queue.pending.push_back(receive);
  return future;
}

// In a forked child it fails for a lock that another thread held at the fork, since nobody releases that there.
std::unique_lock<std::mutex> Communicator::State::lockForRelease(std::mutex& mutex) const {
  return owner_.isCurrent() ? std::unique_lock(mutex) : std::unique_lock(mutex, std::try_to_lock);
}

void Communicator::State::releaseFutures() {
  std::vector<std::function<void()>> released;  // destroyed without locks: one may be the last owner of a message
  const auto lock = lockForRelease(mutex_);
  if (!lock) return;
  for (auto& [rankAndTag, queue] : receiveQueues_) {
    const auto queueLock = lockForRelease(queue->mutex);
    if (!queueLock) continue;
    for (const auto& receive : queue->pending) released.push_back(std::exchange(receive->waitForFuture, nullptr));
  }
}

void Communicator::State::complete(ReceiveQueue& queue, const RankAndTag& rankAndTag, const PendingReceive& receive) {
  std::unique_lock lock(queue.mutex);
  while (!receive.done) {
    if (queue.isReceiving) {
      queue.changed->wait(lock);
      continue;
    }
    queue.isReceiving = true;
    const std::shared_ptr<PendingReceive> first = queue.pending.front();
    lock.unlock();
    std::exception_ptr failure;
    Bytes bytes;
    try {
      bytes = receiveNow(rankAndTag.first, rankAndTag.second);
    } catch (...) {
      failure = std::current_exception();
    }
    if (!failure) first->finish(bytes);
    lock.lock();
    queue.isReceiving = false;
    std::deque<std::shared_ptr<PendingReceive>> completed;
    if (failure) {
      // It is unknown which message was lost, so the later receives fail too.
      completed.swap(queue.pending);
      for (const auto& each : completed) each->failure = failure;
    } else {
      completed.push_back(first);
      queue.pending.pop_front();
    }
    for (const auto& each : completed) each->done = true;
    lock.unlock();
    queue.changed->notify_all();
    for (const auto& each : completed) {
      const auto waitForFuture = std::exchange(each->waitForFuture, nullptr);
      if (waitForFuture && each.get() != &receive) waitForFuture();
    }
    lock.lock();
  }
}

Communicator::State::Bytes Communicator::State::receiveNow(int rank, int tag) {
  if (rank == bootstrap_->getRank()) return receiveFromSelf(tag);
  const BootstrapCall call(*this);
  Bytes bytes;
  bootstrap_->recv(bytes, rank, tag);
  return bytes;
}

Communicator::State::Bytes Communicator::State::receiveFromSelf(int tag) {
  std::unique_lock lock(selfMutex_);
  auto& queue = selfMessages_[tag];
  if (!selfArrived_->wait_for(lock, env()->bootstrapTimeout,
                              [&] { return failures_->isAborted() || !queue.empty(); })) {
    throw Error("Communicator: this rank receives from itself on tag " + std::to_string(tag) +
                    ", but has sent nothing there; send before asking the future",
                ErrorCode::Timeout);
  }
  throwIfAborted();
  Bytes bytes = std::move(queue.front());
  queue.pop_front();
  return bytes;
}

void Communicator::State::recordConnection(const Connection& connection, int rank, int tag) {
  std::lock_guard lock(mutex_);
  std::erase_if(connections_, [](const auto& entry) { return entry.first.expired(); });
  connections_[connection.base()] = {rank, tag};
  connection.base()->endWith(failures_, rank);
}

Communicator::State::RankAndTag Communicator::State::rankAndTagOf(const Connection& connection) const {
  std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection.base());
  if (!connection.base() || found == connections_.end()) {
    throw std::out_of_range("Communicator: the connection was not made by connect() of this communicator");
  }
  return found->second;
}

std::shared_ptr<WaitMonitor> Communicator::State::monitor(DeviceType where) {
  std::lock_guard lock(mutex_);
  auto& monitor = monitors_[where];
  if (!monitor) {
    monitor.reset(new WaitMonitor(where, failures_, waitTimeout_));
  }
  return monitor;
}

void Communicator::State::abort() noexcept {
  try {
    failures_->abort({bootstrap_->getRank(), "its communicator was aborted"});
  } catch (...) {  // out of memory for the reason
    failures_->abort({bootstrap_->getRank(), {}});
  }
  { std::lock_guard lock(selfMutex_); }  // a thread that waits there has seen the abort, or will be notified
  selfArrived_->notify_all();
  // A call of this communicator that is about to block, but has not blocked yet, must end as well.
  if (activeBootstrapCalls_ > 0) {
    bootstrap_->abort();
  } else {
    bootstrap_->abortBlocked();
  }
}

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
    : state_(std::make_shared<State>(std::move(bootstrap), std::move(context))) {}

Communicator::~Communicator() {
  state_->releaseFutures();
}

std::shared_ptr<Bootstrap> Communicator::bootstrap() const {
  return state_->bootstrap();
}
std::shared_ptr<Context> Communicator::context() const {
  return state_->context();
}

RegisteredMemory Communicator::registerMemory(void* data, std::size_t size, TransportFlags transports) {
  return context()->registerMemory(data, size, transports);
}

void Communicator::sendMemory(RegisteredMemory memory, int remoteRank, int tag) {
  state_->send(memory.serialize(), remoteRank, tag);
  state_->retain(std::move(memory));
}

std::shared_future<RegisteredMemory> Communicator::recvMemory(int remoteRank, int tag) {
  return State::receive(state_, remoteRank, tag, [state = state_.get(), remoteRank](const State::Bytes& bytes) {
    return state->callPeer("recvMemory from rank ", remoteRank, [&](const detail::Deadline& deadline) {
      return detail::deserializeMemory(bytes, deadline);
    });
  });
}

std::shared_future<Connection> Communicator::connect(const Endpoint& localEndpoint, int remoteRank, int tag) {
  state_->send(localEndpoint.serialize(), remoteRank, tag);
  return State::receive(
      state_, remoteRank, tag, [state = state_.get(), localEndpoint, remoteRank, tag](const State::Bytes& bytes) {
        const Endpoint remoteEndpoint = Endpoint::deserialize(bytes);
        Connection connection = state->callPeer("connect to rank ", remoteRank, [&](const detail::Deadline& deadline) {
          return state->context()->state().connect(state->context(), localEndpoint, remoteEndpoint, deadline);
        });
        state->recordConnection(connection, remoteRank, tag);
        return connection;
      });
}

std::shared_future<Connection> Communicator::connect(const EndpointConfig& localConfig, int remoteRank, int tag) {
  return connect(context()->createEndpoint(localConfig), remoteRank, tag);
}

std::shared_future<Semaphore> Communicator::buildSemaphore(const Connection& connection, int remoteRank, int tag) {
  SemaphoreStub local(connection);
  state_->send(local.serialize(), remoteRank, tag);
  return State::receive(
      state_, remoteRank, tag, [state = state_.get(), local = std::move(local), remoteRank](const State::Bytes& bytes) {
        const auto remote = state->callPeer(
            "buildSemaphore with rank ", remoteRank,
            [&](const detail::Deadline& deadline) { return SemaphoreStub::deserializeBefore(bytes, deadline); });
        return Semaphore(local, remote, state->monitor(local.device().type), state->bootstrap()->getRank(), remoteRank);
      });
}

int Communicator::remoteRankOf(const Connection& connection) const {
  return state_->rankAndTagOf(connection).first;
}
int Communicator::tagOf(const Connection& connection) const {
  return state_->rankAndTagOf(connection).second;
}

std::shared_ptr<WaitMonitor> Communicator::monitor(DeviceType where) {
  return state_->monitor(where);
}

void Communicator::setWaitTimeout(std::chrono::milliseconds timeout) {
  state_->setWaitTimeout(timeout);
}

void Communicator::abort() noexcept {
  state_->abort();
}

}  // namespace mscclpp
