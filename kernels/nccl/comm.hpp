// A rank's communicator as the C API means it: collectives, windows, operators, and what becomes of it when it fails.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/movers/one_sided_mover.hpp"
#include "kernels/nccl/api_call.hpp"
#include "kernels/nccl/config.hpp"
#include "kernels/nccl/flight_recorder.hpp"
#include "kernels/nccl/forwarded_comm.hpp"
#include "kernels/nccl/operator_table.hpp"
#include "kernels/nccl/pending_connections.hpp"
#include "kernels/nccl/rank_set.hpp"
#include "kernels/nccl/result.hpp"
#include "kernels/nccl/sibling_resources.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::nccl {

/// For each rank of a communicator that is shrunk: 1 if it is to be one of the new communicator, else 0.
using NamedRanks = std::vector<char>;

/// Of a rank of a communicator that grows.
struct GrowthOptions {
  std::optional<UniqueId> id;  ///< that a rank was given: growthId()
  CommConfig config;
};

/// Kept alive by the calls that use it, so that any thread may abort or destroy it at any time. abort(), asyncError()
/// and the queries may overlap with all other functions; those are called by one thread at a time, as NCCL requires.
/// Functions throw ApiError or another Error; "collective" ones are called by all ranks.
class Comm {
 public:
  /// Collective: sets up the ranks' collectives on the current device. Where this library cannot serve the ranks, all
  /// of them go to the NCCL that MSCCLPP_NCCL_LIB_PATH names; throws ncclInvalidUsage if a rank has none.
  Comm(RankSet ranks, CommConfig config);
  /// Ends it locally: waits for the work on this rank's device that uses its memory, and for no other rank. Ranks that
  /// still wait for this one notice when this rank's connections end: at once if it has no other communicator over
  /// them, else with the last of these (one split from the other, or both from a third), or with its process. Ranks of
  /// this process may go on using its memory.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const RankSet& ranks() const noexcept { return ranks_; }
  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  /// noDevice on a CPU rank.
  int device() const noexcept { return device_; }
  const CommConfig& config() const noexcept { return config_; }
  /// Of the NCCL that performs the calls; null if this library does.
  const ForwardedComm* forwarded() const noexcept { return forwarded_.get(); }

  /// Throws ncclInvalidUsage if the communicator was finalised, revoked or aborted.
  void requireReady() const;
  /// Checks a call. Throws ncclInvalidArgument, and what requireReady() throws.
  PendingCall prepare(const ApiCall& call) const;
  /// The same for one-sided calls: to copy the buffer of `call` to a peer's part of a window, `offset` bytes from its
  /// beginning, and signal the peer; only to signal it; to wait for signals.
  PendingCall preparePut(const ApiCall& call, ncclWindow_t window, std::size_t offset, SignalName signal) const;
  PendingCall prepareSignal(const ApiCall& call, SignalName signal) const;
  PendingCall prepareWait(const ApiCall& call, std::span<const ncclWaitSignalDesc_t> awaited) const;
  /// Enqueues the calls of a group, or on CPU ranks performs them: the collectives and one-sided calls in their order,
  /// then all messages at once.
  void run(std::span<const PendingCall> calls);

  /// Collective: the ranks of one color become a communicator, ordered by key and then by rank. Null for splitNoColor.
  /// readConfig: what it throws on one rank is an error on all of them.
  std::shared_ptr<Comm> split(int color, int key, const std::function<CommConfig()>& readConfig);
  /// Called by all ranks but the excluded ones, which they pass alike: what is wrong with the arguments of one rank is
  /// an error on all of them. readConfig as for split(). flags: shrinkAbort ends the calls in progress first, and works
  /// when ranks have failed.
  std::shared_ptr<Comm> shrink(std::span<const int> excluded, const std::function<CommConfig()>& readConfig, int flags);

  /// What connects the ranks that are to join this communicator with its own, for the next call of grow(), also if that
  /// fails. The same on all ranks.
  UniqueId growthId() const;
  /// Called by all ranks, while those that join connect with growthId() and ranks from size() on: a communicator of
  /// `ranks` ranks, in which this one keeps its number. readOptions: what it throws on one rank is an error on all of
  /// them, those that join included. others: of this process and with the same id; closing it ends the growth.
  std::shared_ptr<Comm> grow(int ranks, const std::function<GrowthOptions()>& readOptions, PendingConnections& others);

  /// Of this rank's device, in bytes; of the host on a CPU rank: what suspend() releases, whether it has or not, and
  /// what the communicator has allocated besides.
  struct MemoryUse {
    std::size_t suspendable;
    std::size_t persistent;
    bool isSuspended;
  };
  MemoryUse memoryUse() const;
  /// Collective: releases the scratch, or allocates it anew. No call may be made in between. What fails on one rank is
  /// an error on all of them. suspend() throws ncclInvalidUsage if there are windows, or a graph has captured a call,
  /// since it has the addresses; resume() has no effect on a communicator that is not suspended.
  void suspend();
  void resume();

  /// No more calls follow.
  void finalize();
  /// Ends all calls in progress on this rank, and tells the other ranks, whose calls that wait for it end with
  /// ncclRemoteError. Communicators over the same connections go on.
  void abort() noexcept;
  /// Ends all calls in progress on this rank. The communicator remains, to be split, shrunk or destroyed, and so do its
  /// connections: the others notice when it is aborted, or as after its destruction.
  void revoke();
  /// The first failure that this rank has noticed: of a kernel, a wait, or another rank. ncclSuccess: none.
  Failure asyncError() noexcept;
  /// True once.
  bool isFirstReport() noexcept { return !isReported_.exchange(true); }

  /// Collective, with the same flags: names memory, `bytes` at `data`. With windowSymmetric all ranks may write it, and
  /// calls use it without copies; without, collectives do not, since a call's outputs may lie at other offsets on each
  /// rank, and one-sided calls can write it if it is memory that peers can map.
  ncclWindow_t registerWindow(void* data, std::size_t bytes, int flags);
  void deregisterWindow(ncclWindow_t window);
  void* windowAddress(ncclWindow_t window) const;
  OperatorTable& operators() noexcept { return operators_; }

 private:
  /// What peers in this process may still use when this rank is done, when it has no connections any more. Destroyed
  /// from the last member to the first.
  struct Resources {
    std::shared_ptr<Communicator> communicator;
    std::unique_ptr<kernels::OneSidedMover> oneSided;  // null before the first window; set under mutex_
    std::shared_ptr<Collectives> collectives;          // null while suspended; set under mutex_
  };
  struct Window {
    void* data;
    std::optional<RegisteredBuffers::Handle> registration;  // of a symmetric window
    std::optional<RegisteredBuffer> mapped;                 // of any other one that the peers can map

    /// Null if no peer has mapped it.
    const RegisteredBuffer* buffer() const {
      return registration ? &registration->buffer() : mapped ? &*mapped : nullptr;
    }
  };
  enum class State { Ready, Suspended, Finalized, Revoked, Aborted };
  /// The order in which the calls of a group are enqueued. Ranks have different messages and one-sided calls among the
  /// same collectives, and a wait may need what a peer signals in the same group: so what waits for nobody comes first,
  /// all collectives are together, and waits come last.
  enum class Phase { Puts, Collectives, Messages, Waits };

  /// Collective: creates a communicator of the NCCL that the environment names.
  void forward();
  bool isRevoked() const;
  bool isSuspended() const;
  /// Collective.
  std::shared_ptr<Collectives> makeCollectives() const;
  /// Null while suspended.
  std::shared_ptr<Collectives> findCollectives() const;
  /// New connections between some ranks, for when the present ones may have failed. Throws ncclInvalidUsage if this was
  /// done before with the same first member.
  RankSet reconnect(const std::vector<int>& members, PendingConnection& connection);
  /// In its place, on a rank that cannot: ends the calls of the others, if they come within some seconds.
  void giveUpReconnecting(const std::vector<int>& members, const Error& why) const;
  static Phase phaseOf(const PendingCall& call);
  void runPhase(Phase phase, std::span<const PendingCall> calls);
  /// On one stream, whichever the calls name.
  void runCollectives(std::span<const PendingCall> calls, cudaStream_t stream);
  void runMessages(std::span<const PendingCall> calls, cudaStream_t stream);
  void runOneSided(const PendingCall& call);
  /// The number of the counter that a signal of this name increments. Throws ncclInvalidArgument if there is none.
  int counterOf(SignalName signal) const;
  void requirePeer(int peer) const;
  /// Null before the first window.
  const kernels::OneSidedMover* findOneSided() const;
  /// Throws ncclInvalidArgument for an unknown window. The caller holds mutex_.
  ncclWindow_t requireWindow(ncclWindow_t window) const;
  void stop() noexcept;
  void recordFailure(const Failure& failure) noexcept;
  void dumpCalls(const std::string& why) const noexcept;

  const CommConfig config_;
  const int device_;
  RankSet ranks_;
  std::shared_ptr<SiblingResources> siblings_;
  std::shared_ptr<Resources> resources_;
  std::unique_ptr<ForwardedComm> forwarded_;
  std::vector<UniqueId> successorIds_;  // of each rank: for a rank set that it will be rank 0 of
  SignalNames signalNames_{};
  int maxBlocks_ = 0;  // of a kernel
  std::size_t suspendableBytes_ = 0;
  PendingConnections pendingConnections_;  // of calls that connect some ranks anew
  std::set<NamedRanks> shrunkTo_;          // by calls of this rank
  bool hasFailedShrink_ = false;           // over the connections of this one

  OperatorTable operators_;
  FlightRecorder recorder_;
  std::mutex callMutex_;     // held during calls that use the collectives
  bool isCaptured_ = false;  // a graph has captured a call

  mutable std::mutex mutex_;
  State state_ = State::Ready;
  std::set<int> usedSuccessors_;  // of successorIds_: an id connects ranks once
  Failure failure_{ncclSuccess, {}};
  std::atomic<bool> isReported_ = false;
  std::map<ncclWindow_t, std::shared_ptr<Window>> windows_;
};

}  // namespace mscclpp::nccl
