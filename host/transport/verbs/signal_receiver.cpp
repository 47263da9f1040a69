#include "signal_receiver.hpp"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "../../service_thread.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail::ib {

InboundSignals::InboundSignals(std::shared_ptr<SignalReceiver> receiver, int capacity)
    : receiver_(std::move(receiver)) {
  queue_.reset(
      library().createCq(receiver_->device_->context(), capacity, this, receiver_->channel_.get(), /*comp_vector=*/0));
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
    throw IbError("asking for notice of signals", failure);
  }
  receiver_->active_.insert(this);
  receiver_->needThread();
}

void InboundSignals::stop() noexcept {
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
      // What a queue pair that broke gives back; the sending side says why it broke.
      if (completion.status != IBV_WC_SUCCESS) continue;
      pair_->postReceive();
      if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        failure_ = "the peer sent a message that is no signal";
      } else {
        handle(be32toh(completion.imm_data));
      }
    }
  }
}

void InboundSignals::handle(std::uint32_t bits) {
  const SignalCode code = SignalCode::decode(bits);
  const std::uint64_t number = numbers_.add(code);
  if (code.what == SignalCode::What::Piece) return;
  if (code.target >= targets_.size()) targets_.resize(code.target + 1);
  Target& target = targets_[code.target];
  switch (code.what) {
    case SignalCode::What::Piece:
      break;
    case SignalCode::What::Region:
      target = {};
      // No region has the number 0.
      target.region = number > UINT32_MAX ? 0 : static_cast<std::uint32_t>(number);
      break;
    case SignalCode::What::Offset:
      target.offset = number;
      nameWord(target);
      break;
    case SignalCode::What::Add:
      addTo(target, number);
      break;
  }
}

void InboundSignals::nameWord(Target& target) {
  const bool found = receiver_->regions_->use(target.region, [&](const Region& region) {
    const auto address = reinterpret_cast<std::uintptr_t>(region.data()) + target.offset;
    target.named = target.offset <= region.size() && region.size() - target.offset >= sizeof(std::uint64_t) &&
                   address % sizeof(std::uint64_t) == 0;
    if (!target.named) failure_ = "the peer signals a word outside of the registered memory";
    if (target.named && region.gpu() >= 0) {
      target.value = receiver_->writerFor(region.gpu()).load(reinterpret_cast<std::uint64_t*>(address));
    }
  });
  if (!found) failure_ = "the peer signals memory that is not registered (any more)";
}

void InboundSignals::addTo(Target& target, std::uint64_t delta) {
  if (!target.named) {
    failure_ = "the peer signals a word that it has not named";
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
  channel_.reset(library().createCompChannel(device_->context()));
  if (!channel_) throw IbError("creating a completion channel of " + device_->name(), errno);
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw SysError("making a completion channel not block", errno);
  }
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_) throw SysError("eventfd", errno);
}

SignalReceiver::~SignalReceiver() {
  const std::uint64_t one = 1;
  // An eventfd that holds zero always takes it.
  static_cast<void>(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void SignalReceiver::needThread() {
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
    if (sources[0].revents != 0) serveOne();
  }
}

// Asks for the next notice before it looks a last time: what arrives after the look gives one.
void SignalReceiver::serveOne() noexcept {
  ibv_cq* queue = nullptr;
  void* owner = nullptr;
  if (library().getCqEvent(channel_.get(), &queue, &owner) != 0) return;
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
      // Else the peer would wait for ever for room that is made no more.
      if (!inbound->failure_.empty()) inbound->pair_->breakOff();
    }
  }
  // Destroying the queue waits for this, so the queue is still there although its connection may have gone.
  library().ackCqEvents(queue, 1);
}

}  // namespace mscclpp::detail::ib
