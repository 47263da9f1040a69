// Signals that arrive as writes-with-immediate: a thread that waits for them and stores them into their counters.
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

#include "../../gpu_rdma.hpp"
#include "../../unique_fd.hpp"
#include "queue_pair.hpp"
#include "region.hpp"
#include "signal_code.hpp"

namespace mscclpp::detail::ib {

class SignalReceiver;

/// The signals of one connection. A completion says that the data which the peer wrote before has been placed; a counter
/// in host memory is then raised with release, and one in GPU memory after a flush of such writes (GpuWordWriter).
class InboundSignals {
 public:
  ~InboundSignals();
  InboundSignals(const InboundSignals&) = delete;
  InboundSignals& operator=(const InboundSignals&) = delete;

  ibv_cq* queue() const noexcept { return queue_.get(); }
  /// Makes room for `count` signals at `pair`, whose receive queue is queue(). The pair must outlive stop().
  void start(QueuePair& pair, int count);
  /// When it returns the thread does not look at this connection any more, and will not.
  void stop() noexcept;
  /// Why it ended, empty while it has not: the peer sent nonsense, or a counter could not be written. Any thread.
  std::string failure() const;

 private:
  friend class SignalReceiver;
  struct Target {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
    bool named = false;
    /// Of a word in GPU memory, whose only writer this is.
    std::uint64_t value = 0;
  };

  InboundSignals(std::shared_ptr<SignalReceiver> receiver, int capacity);
  // All of these are called by the receiver's thread, with its lock held.
  void drain();
  void handle(std::uint32_t bits);
  void nameWord(Target& target);
  void addTo(Target& target, std::uint64_t delta);

  std::shared_ptr<SignalReceiver> receiver_;
  Owner<ibv_cq> queue_;
  QueuePair* pair_ = nullptr;
  NumberReader numbers_;
  std::vector<Target> targets_;
  std::string failure_;
};

/// One thread for all connections of a network that have such signals; it sleeps while nothing arrives.
class SignalReceiver : public std::enable_shared_from_this<SignalReceiver> {
 public:
  SignalReceiver(std::shared_ptr<VerbsDevice> device, std::shared_ptr<const RegionTable> regions);
  ~SignalReceiver();
  SignalReceiver(const SignalReceiver&) = delete;
  SignalReceiver& operator=(const SignalReceiver&) = delete;

  /// `capacity`: signals that can arrive before the thread has looked.
  std::shared_ptr<InboundSignals> open(int capacity);

 private:
  friend class InboundSignals;
  /// Starts the thread, if it does not run yet. With the lock held.
  void needThread();
  void run() noexcept;
  void serveOne() noexcept;
  GpuWordWriter& writerFor(int gpu);

  std::shared_ptr<VerbsDevice> device_;
  std::shared_ptr<const RegionTable> regions_;
  Owner<ibv_comp_channel> channel_;
  UniqueFd stop_;
  std::mutex mutex_;
  std::set<InboundSignals*> active_;
  std::map<int, std::unique_ptr<GpuWordWriter>> writers_;
  std::thread thread_;
};

}  // namespace mscclpp::detail::ib
