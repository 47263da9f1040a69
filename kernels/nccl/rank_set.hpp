// The ranks of a communicator and how they reach each other: by connections of their own, or by those that the
// communicator has from which it was split.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <exception>
#include <memory>
#include <vector>

#include "host/bootstrap/subset_bootstrap.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::nccl {

class RankSet {
 public:
  /// Equal for the ranks of the same set, and different for any other set of this process.
  struct Key {
    UniqueId id;
    int context;
    int firstMember;  // of those that the id connects: the colors of a split have the same context
    auto operator<=>(const Key&) const = default;
  };

  /// Connects the ranks of an id by a bootstrap that was not initialized. Returns when all of them have called it, or
  /// another thread aborts the bootstrap. timeout: of this and of later calls of the bootstrap. Throws what
  /// TcpBootstrap::initialize throws.
  static RankSet connect(std::shared_ptr<TcpBootstrap> bootstrap, const UniqueId& id,
                         std::chrono::milliseconds timeout = env()->ncclTimeout);

  /// Called in its place by a rank 0 that cannot: tells the next `count` ranks that join, if they do within some
  /// seconds, why. Returns whether any has.
  static bool refuse(const UniqueId& id, const std::exception& reason, int count) noexcept;
  /// Called in its place by another rank that cannot: the others fail, if their rank 0 comes within some seconds.
  /// Returns whether it has.
  static bool giveUp(const UniqueId& id, int rank) noexcept;

  /// A number for a new subset, which no other rank gives and this one never gives again: one rank chooses it, whatever
  /// other subsets are being made over the same connections. 0 if none is left.
  int newContext() const noexcept;

  /// Some ranks of this set, the caller among them, in the order of their ranks in the new one. Called by all of them,
  /// with the same newContext() of one rank. Throws ncclInvalidUsage if it is 0.
  RankSet subset(const std::vector<int>& members, int context) const;

  /// Tells the other ranks that this one makes no more calls with them: what they wait for it ends as if its process
  /// had left, whatever other sets it is in.
  void leave() const noexcept { bootstrap_->leave(); }
  /// This rank makes no more calls, in any copy of this set. The connections end if no other set uses them.
  void disconnect() noexcept;

  const std::shared_ptr<detail::SubsetBootstrap>& bootstrap() const noexcept { return bootstrap_; }
  int rank() const { return bootstrap_->getRank(); }
  int size() const { return bootstrap_->getNranks(); }
  bool isOnOneHost() const { return bootstrap_->getNranksPerNode() == size(); }
  const Key& key() const noexcept { return key_; }
  /// Whether one of the two was split from the other, or both from a third one.
  bool sharesConnectionsWith(const RankSet& other) const noexcept { return connections_ == other.connections_; }

 private:
  /// What the sets that were split from each other share.
  struct Connections {
    std::shared_ptr<TcpBootstrap> bootstrap;
    std::atomic<int> contextsGiven = 0;  // by this rank
  };

  std::shared_ptr<Connections> connections_;
  std::vector<int> members_;  // ranks of the connections
  std::shared_ptr<detail::SubsetBootstrap> bootstrap_;
  Key key_{};
};

}  // namespace mscclpp::nccl
