// Signals that arrive as writes-with-immediate: a thread that waits for them and adds them to their counters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/base/unique_fd.hpp"
#include "host/cuda/gpu_rdma.hpp"
#include "host/transport/verbs/queue_pair.hpp"
#include "host/transport/verbs/region.hpp"
#include "host/transport/verbs/signal_code.hpp"

namespace mscclpp::detail::ib {

class SignalReceiver;

/// The signals of one connection. A completion means that the data which the peer wrote before has been placed; a
/// counter in host memory is then increased with release semantics, one in GPU memory after flushing these writes
/// (GpuWordWriter).
class InboundSignals {
 public:
  ~InboundSignals();
  InboundSignals(const InboundSignals&) = delete;
  InboundSignals& operator=(const InboundSignals&) = delete;

  ibv_cq* queue() const noexcept { return queue_.get(); }
  /// Posts receives for `count` signals at `pair`, whose receive queue is queue(). The pair must outlive stop().
  void start(QueuePair& pair, int count);
  /// After it returns, the thread no longer accesses this connection.
  void stop() noexcept;
  /// Why it failed, empty if it has not: the peer sent invalid signals, or a counter could not be written. Any thread
  /// may call it.
  std::string failure() const;

 private:
  friend class SignalReceiver;
  struct Target {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
    bool resolved = false;
    /// The value of a word in GPU memory that only this thread writes.
    std::uint64_t value = 0;
  };

  InboundSignals(std::shared_ptr<SignalReceiver> receiver, int capacity);
  // All of these are called by the receiver's thread, with its lock held.
  void drain();
  void handle(std::uint32_t bits);
  void resolveTarget(Target& target);
  void addTo(Target& target, std::uint64_t delta);

  std::shared_ptr<SignalReceiver> receiver_;
  IbvPtr<ibv_cq> queue_;
  QueuePair* pair_ = nullptr;
  NumberDecoder numbers_;
  std::vector<Target> targets_;
  std::string failure_;
};

/// One thread for all connections of a device that have such signals; it sleeps while nothing arrives.
class SignalReceiver : public std::enable_shared_from_this<SignalReceiver> {
 public:
  SignalReceiver(std::shared_ptr<VerbsDevice> device, std::shared_ptr<const RegionTable> regions);
  /// Joins the thread. In a forked child it does not touch the parent's.
  ~SignalReceiver();
  SignalReceiver(const SignalReceiver&) = delete;
  SignalReceiver& operator=(const SignalReceiver&) = delete;

  /// `capacity`: signals that can arrive before the thread handles them.
  std::shared_ptr<InboundSignals> open(int capacity);

 private:
  friend class InboundSignals;
  /// Starts the thread if it is not running. With the lock held.
  void ensureThreadRunning();
  void run() noexcept;
  void handleEvent() noexcept;
  GpuWordWriter& writerFor(int gpu);

  const OwnerProcess owner_;
  std::shared_ptr<VerbsDevice> device_;
  std::shared_ptr<const RegionTable> regions_;
  IbvPtr<ibv_comp_channel> channel_;
  UniqueFd stop_;
  std::mutex mutex_;
  std::set<InboundSignals*> active_;
  std::map<int, std::unique_ptr<GpuWordWriter>> writers_;
  std::thread thread_;
};

}  // namespace mscclpp::detail::ib
