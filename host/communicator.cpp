#include "mscclpp/host/communicator.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "communicator_state.hpp"
#include "connection_base.hpp"
#include "lost_rank.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

// The receives of one (rank, tag) that are still due.
struct Communicator::State::Line {
  std::mutex receiving;  // whoever takes messages from the bootstrap, and waits for them; taken before `mutex`
  std::mutex mutex;      // what follows; nobody waits for a message with it
  std::deque<std::shared_ptr<Receive>> due;
  // Waits for the future that was given out last, unless that has been completed.
  std::function<void()> last;
  std::weak_ptr<const Receive> lastReceive;
};

class Communicator::State::Receive {
 public:
  Receive(Channel channel, Line& line) : channel(channel), line(line) {}

  Channel channel;
  Line& line;
  // Of whoever has line.receiving.
  bool done = false;
  Bytes bytes;
  std::exception_ptr failure;
};

// Either sees that the communicator is aborted, or is seen by abort().
class Communicator::State::BootstrapCall {
 public:
  explicit BootstrapCall(State& state) : calls_(state.calls_) {
    ++calls_;
    if (!state.aborted_) return;
    --calls_;
    state.refuseIfAborted();
  }
  ~BootstrapCall() { --calls_; }
  BootstrapCall(const BootstrapCall&) = delete;
  BootstrapCall& operator=(const BootstrapCall&) = delete;

 private:
  std::atomic<int>& calls_;
};

Communicator::State::State(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
    : bootstrap_(std::move(bootstrap)), context_(context ? std::move(context) : Context::create()) {
  if (!bootstrap_) throw Error("Communicator: the bootstrap must not be null", ErrorCode::InvalidUsage);
  liveness_ = dynamic_cast<Liveness*>(bootstrap_.get());
  if (liveness_ != nullptr) {
    subscription_ = liveness_->onFailure([this](const RankFailure& failure) { onFailure(failure); });
  }
}

Communicator::State::~State() {
  if (liveness_ != nullptr) liveness_->unsubscribe(subscription_);
}

void Communicator::State::refuseIfAborted() const {
  if (aborted_) throw Error("the communicator was aborted; make a new one", ErrorCode::Aborted);
}

void Communicator::State::checkChannel(int rank, int tag) const {
  if (rank < 0 || rank >= bootstrap_->getNranks()) {
    throw Error(
        "Communicator: there is no rank " + std::to_string(rank) + " among " + std::to_string(bootstrap_->getNranks()),
        ErrorCode::InvalidUsage);
  }
  if (tag < 0) throw Error("Communicator: a tag must not be negative", ErrorCode::InvalidUsage);
}

void Communicator::State::send(const Bytes& bytes, int rank, int tag) {
  checkChannel(rank, tag);
  if (rank != bootstrap_->getRank()) {
    const BootstrapCall call(*this);
    return bootstrap_->send(bytes, rank, tag);
  }
  {
    std::lock_guard lock(selfMutex_);
    self_[tag].push_back(bytes);
  }
  selfArrived_.notify_all();
}

void Communicator::State::keep(RegisteredMemory memory) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  while (!sent_.empty() && now - sent_.front().first > env()->bootstrapTimeout) sent_.pop_front();
  sent_.emplace_back(now, std::move(memory));
}

Communicator::State::Line& Communicator::State::lineOf(int rank, int tag) {
  checkChannel(rank, tag);
  std::lock_guard lock(mutex_);
  auto& line = lines_[{rank, tag}];
  if (!line) line = std::make_unique<Line>();
  return *line;
}

template <class Finish>
auto Communicator::State::receive(const std::shared_ptr<State>& state, int rank, int tag, Finish finish)
    -> std::shared_future<std::invoke_result_t<Finish&, Bytes>> {
  Line& line = state->lineOf(rank, tag);
  std::lock_guard lock(line.mutex);
  auto place = std::make_shared<Receive>(Channel{rank, tag}, line);
  line.due.push_back(place);
  auto body = [state, place, previous = std::move(line.last), finish = std::move(finish)]() mutable {
    if (previous) std::exchange(previous, nullptr)();
    {
      std::lock_guard lineLock(place->line.mutex);
      if (place->line.lastReceive.lock() == place) place->line.last = nullptr;
    }
    return finish(state->complete(*place));
  };
  const auto future = std::async(std::launch::deferred, std::move(body)).share();
  line.last = [future] { future.wait(); };
  line.lastReceive = place;
  return future;
}

void Communicator::State::forgetFutures() {
  std::vector<std::function<void()>> forgotten;  // destroyed without locks: it may be the last that holds a message
  std::lock_guard lock(mutex_);
  for (auto& [channel, line] : lines_) {
    std::lock_guard lineLock(line->mutex);
    forgotten.push_back(std::exchange(line->last, nullptr));
  }
}

Communicator::State::Bytes Communicator::State::complete(Receive& receive) {
  Line& line = receive.line;
  std::lock_guard receiving(line.receiving);
  while (!receive.done) {
    const auto first = [&] {
      std::lock_guard lock(line.mutex);
      return line.due.front();
    }();
    // A failed receive leaves the line in disorder: which message was lost is unknown. So all later ones fail alike.
    try {
      first->bytes = receiveNow(first->channel.first, first->channel.second);
    } catch (...) {
      std::lock_guard lock(line.mutex);
      for (const auto& waiting : line.due) {
        waiting->failure = std::current_exception();
        waiting->done = true;
      }
      line.due.clear();
      break;
    }
    first->done = true;
    std::lock_guard lock(line.mutex);
    line.due.pop_front();
  }
  if (receive.failure) std::rethrow_exception(receive.failure);
  return std::move(receive.bytes);
}

Communicator::State::Bytes Communicator::State::receiveNow(int rank, int tag) {
  if (rank == bootstrap_->getRank()) return takeFromSelf(tag);
  const BootstrapCall call(*this);
  Bytes bytes;
  bootstrap_->recv(bytes, rank, tag);
  return bytes;
}

Communicator::State::Bytes Communicator::State::takeFromSelf(int tag) {
  std::unique_lock lock(selfMutex_);
  auto& queue = self_[tag];
  if (!selfArrived_.wait_for(lock, env()->bootstrapTimeout, [&] { return aborted_ || !queue.empty(); })) {
    throw Error("Communicator: this rank receives from itself on tag " + std::to_string(tag) +
                    ", but has sent nothing there; send before asking the future",
                ErrorCode::Timeout);
  }
  refuseIfAborted();
  Bytes bytes = std::move(queue.front());
  queue.pop_front();
  return bytes;
}

void Communicator::State::remember(const Connection& connection, int rank, int tag) {
  std::lock_guard lock(mutex_);
  std::erase_if(connections_, [](const auto& entry) { return entry.first.expired(); });
  connections_[connection.base_] = {rank, tag};
  std::lock_guard watchLock(watchMutex_);
  if (failure_ && failure_->rank == rank) {
    connection.base_->abort(*failure_);
  } else if (aborted_) {
    connection.base_->abort();
  }
}

Communicator::State::Channel Communicator::State::channelOf(const Connection& connection) const {
  std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection.base_);
  if (!connection.base_ || found == connections_.end()) {
    throw std::out_of_range("Communicator: the connection was not made by connect() of this communicator");
  }
  return found->second;
}

std::shared_ptr<WaitMonitor> Communicator::State::monitor(DeviceType where) {
  std::lock_guard lock(mutex_);
  auto& monitor = monitors_[where];
  if (!monitor) {
    auto made = std::make_shared<WaitMonitor>(where);
    watch(made->watch_);
    monitor = std::move(made);
  }
  return monitor;
}

void Communicator::State::watch(const std::shared_ptr<detail::WaitWatch>& watch) {
  std::lock_guard lock(watchMutex_);
  std::erase_if(watches_, [](const auto& known) { return known.expired(); });
  watches_.push_back(watch);
  if (failure_) {
    watch->abort(*failure_);
  } else if (aborted_) {
    watch->abort();
  }
}

void Communicator::State::abort() noexcept {
  {
    std::lock_guard lock(watchMutex_);
    aborted_ = true;
    for (const auto& known : watches_) {
      if (const auto watch = known.lock()) watch->abort();
    }
  }
  {
    std::lock_guard lock(mutex_);
    for (const auto& [known, channel] : connections_) {
      if (const auto connection = known.lock()) connection->abort();
    }
  }
  { std::lock_guard lock(selfMutex_); }  // who waits there has seen the flag, or is notified
  selfArrived_.notify_all();
  // A call that was about to block when it was looked for is found a little later.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  bootstrap_->abortBlocked();
  while (calls_ > 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bootstrap_->abortBlocked();
  }
}

void Communicator::State::onFailure(const RankFailure& failure) noexcept {
  {
    std::lock_guard lock(watchMutex_);
    if (aborted_) return;  // the failure may be this rank's own, of being aborted
    detail::keepFirst(failure_, failure);
    for (const auto& known : watches_) {
      if (const auto watch = known.lock()) watch->abort(failure);
    }
  }
  std::lock_guard lock(mutex_);
  for (const auto& [known, channel] : connections_) {
    if (channel.first != failure.rank) continue;
    if (const auto connection = known.lock()) connection->abort(failure);
  }
}

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context)
    : state_(std::make_shared<State>(std::move(bootstrap), std::move(context))) {}

Communicator::~Communicator() {
  state_->forgetFutures();
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
  state_->keep(std::move(memory));
}

std::shared_future<RegisteredMemory> Communicator::recvMemory(int remoteRank, int tag) {
  return State::receive(state_, remoteRank, tag, [state = state_.get(), remoteRank](const State::Bytes& bytes) {
    return state->ask("recvMemory from rank ", remoteRank,
                      [&](const detail::Deadline& deadline) { return RegisteredMemory::deserialize(bytes, deadline); });
  });
}

std::shared_future<Connection> Communicator::connect(const Endpoint& localEndpoint, int remoteRank, int tag) {
  state_->send(localEndpoint.serialize(), remoteRank, tag);
  return State::receive(
      state_, remoteRank, tag, [state = state_.get(), localEndpoint, remoteRank, tag](const State::Bytes& bytes) {
        const Endpoint remoteEndpoint = Endpoint::deserialize(bytes);
        Connection connection = state->ask("rank ", remoteRank, [&](const detail::Deadline& deadline) {
          return state->context()->connect(localEndpoint, remoteEndpoint, deadline);
        });
        state->remember(connection, remoteRank, tag);
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
        const auto remote = state->ask("buildSemaphore with rank ", remoteRank, [&](const detail::Deadline& deadline) {
          return SemaphoreStub::deserialize(bytes, deadline);
        });
        return Semaphore(local, remote, state->monitor(local.device().type), state->bootstrap()->getRank(), remoteRank);
      });
}

int Communicator::remoteRankOf(const Connection& connection) const {
  return state_->channelOf(connection).first;
}
int Communicator::tagOf(const Connection& connection) const {
  return state_->channelOf(connection).second;
}

std::shared_ptr<WaitMonitor> Communicator::monitor(DeviceType where) {
  return state_->monitor(where);
}

void Communicator::abort() noexcept {
  state_->abort();
}

}  // namespace mscclpp
