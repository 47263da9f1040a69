#include "host/transport/verbs/signal_receiver.hpp"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "host/base/service_thread.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

InboundSignals::InboundSignals(std::shared_ptr<SignalReceiver> receiver, int capacity)
    : receiver_(std::move(receiver)) {
  queue_.reset(ibvSymbols().createCq(receiver_->device_->context(), capacity, this, receiver_->channel_.get(),
                                     /*comp_vector=*/0));
  if (!queue_) throw IbError("creating a completion queue of " + receiver_->device_->name() + " for signals", errno);
}

InboundSignals::~InboundSignals() {
  stop();
}

void InboundSignals::start(QueuePair& pair, int count) {
  std::lock_guard lock(receiver_->mutex_);
  pair_ = &pair;
  for (int i = 0; i < count; ++i) pair.postReceive();
  if (const int failure = ibv_req_notify_cq(queue_.get(), 0); failure != 0) {
    throw IbError("requesting notification of signals", failure);
  }
  receiver_->active_.insert(this);
  receiver_->ensureThreadRunning();
}

void InboundSignals::stop() noexcept {
  if (!receiver_->owner_.isCurrent()) return;  // the lock may have been held at the fork
  std::lock_guard lock(receiver_->mutex_);
  receiver_->active_.erase(this);
}

std::string InboundSignals::failure() const {
  std::lock_guard lock(receiver_->mutex_);
  return failure_;
}

void InboundSignals::drain() {
  std::array<ibv_wc, 16> completions;
  int count;
  while (failure_.empty() &&
         (count = ibv_poll_cq(queue_.get(), static_cast<int>(completions.size()), completions.data())) != 0) {
    if (count < 0) throw Error("reading the completion queue for signals failed", ErrorCode::SystemError);
    for (int i = 0; i < count && failure_.empty(); ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      // Flushed by a queue pair in the error state; the sending side reports the cause.
      if (completion.status != IBV_WC_SUCCESS) continue;
      pair_->postReceive();
      if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        failure_ = "the peer sent a message that is not a signal";
      } else {
        handle(be32toh(completion.imm_data));
      }
    }
  }
}

void InboundSignals::handle(std::uint32_t bits) {
  const SignalCode code = SignalCode::decode(bits);
  const std::uint64_t number = numbers_.add(code);
  if (code.opcode == SignalCode::Opcode::Piece) return;
  if (code.target >= targets_.size()) targets_.resize(code.target + 1);
  Target& target = targets_[code.target];
  switch (code.opcode) {
    case SignalCode::Opcode::Piece:
      break;
    case SignalCode::Opcode::Region:
      target = {};
      // No region has the id 0.
      target.region = number > UINT32_MAX ? 0 : static_cast<std::uint32_t>(number);
      break;
    case SignalCode::Opcode::Offset:
      target.offset = number;
      resolveTarget(target);
      break;
    case SignalCode::Opcode::Add:
      addTo(target, number);
      break;
  }
}

void InboundSignals::resolveTarget(Target& target) {
  const bool found = receiver_->regions_->use(target.region, [&](const Region& region) {
    const auto address = reinterpret_cast<std::uintptr_t>(region.data()) + target.offset;
    target.resolved = target.offset <= region.size() && region.size() - target.offset >= sizeof(std::uint64_t) &&
                      address % sizeof(std::uint64_t) == 0;
    if (!target.resolved) failure_ = "the peer signals a word outside of the registered memory";
    if (target.resolved && region.gpu() >= 0) {
      target.value = receiver_->writerFor(region.gpu()).load(reinterpret_cast<std::uint64_t*>(address));
    }
  });
  if (!found) failure_ = "the peer signals memory that is not registered (any more)";
}

void InboundSignals::addTo(Target& target, std::uint64_t delta) {
  if (!target.resolved) {
    failure_ = "the peer signals a word that it has not announced";
    return;
  }
  const bool found = receiver_->regions_->use(target.region, [&](const Region& region) {
    auto* word = reinterpret_cast<std::uint64_t*>(region.data() + target.offset);
    if (region.gpu() < 0) {
      std::atomic_ref(*word).fetch_add(delta, std::memory_order_release);
    } else {
      target.value += delta;
      receiver_->writerFor(region.gpu()).store(word, target.value);
    }
  });
  if (!found) failure_ = "the peer signals memory that is not registered any more";
}

SignalReceiver::SignalReceiver(std::shared_ptr<VerbsDevice> device, std::shared_ptr<const RegionTable> regions)
    : device_(std::move(device)), regions_(std::move(regions)) {
  channel_.reset(ibvSymbols().createCompChannel(device_->context()));
  if (!channel_) throw IbError("creating a completion channel of " + device_->name(), errno);
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw SysError("making a completion channel non-blocking", errno);
  }
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_) throw SysError("eventfd", errno);
}

SignalReceiver::~SignalReceiver() {
  if (!owner_.isCurrent()) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  const std::uint64_t one = 1;
  // An eventfd whose counter is zero always accepts the write.
  static_cast<void>(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void SignalReceiver::ensureThreadRunning() {
  if (!thread_.joinable()) thread_ = startServiceThread("mscclpp-verbs", [this] { run(); });
}

std::shared_ptr<InboundSignals> SignalReceiver::open(int capacity) {
  return std::shared_ptr<InboundSignals>(new InboundSignals(shared_from_this(), capacity));
}

GpuWordWriter& SignalReceiver::writerFor(int gpu) {
  auto& writer = writers_[gpu];
  if (!writer) writer = makeGpuWordWriter(gpu);
  return *writer;
}

void SignalReceiver::run() noexcept {
  std::array<pollfd, 2> sources{{{channel_->fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  while (true) {
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return;
    if (sources[1].revents != 0) return;
    if (sources[0].revents != 0) handleEvent();
  }
}

// Requests the next notification before the last poll: a completion that arrives after the poll causes one.
void SignalReceiver::handleEvent() noexcept {
  ibv_cq* queue = nullptr;
  void* owner = nullptr;
  if (ibvSymbols().getCqEvent(channel_.get(), &queue, &owner) != 0) return;
  {
    std::lock_guard lock(mutex_);
    auto* inbound = static_cast<InboundSignals*>(owner);
    if (active_.contains(inbound)) {
      try {
        static_cast<void>(ibv_req_notify_cq(queue, 0));
        inbound->drain();
      } catch (const std::exception& error) {
        inbound->failure_ = error.what();
      }
      // Otherwise the peer would wait forever for receives that are never posted.
      if (!inbound->failure_.empty()) inbound->pair_->setError();
    }
  }
  // Destroying the queue waits for this, so the queue still exists even if its connection does not.
  ibvSymbols().ackCqEvents(queue, 1);
}

}  // namespace mscclpp::detail::ib
