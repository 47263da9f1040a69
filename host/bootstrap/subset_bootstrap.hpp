// A bootstrap over some of the ranks of another one: it has no connections of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "host/bootstrap/context_departures.hpp"
#include "host/bootstrap/mesh_message.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

/// Passes messages on to the parent with the ranks translated, and tags that only this context uses. Failures and
/// departures are reported for the members alone, with their numbers here; but once any rank of the parent has failed,
/// calls of this bootstrap throw what those of the parent do. If the parent is a TcpBootstrap, a member that leaves the
/// subset alone is reported as departed, too.
class SubsetBootstrap : public Bootstrap, public FailureDetector {
 public:
  /// Tags below this can be used, of any bootstrap that has subsets too: the others are for the subsets.
  static constexpr int tags = tagsOfContext;
  /// Contexts are 1 to this.
  static constexpr int maxContext = largestContext;

  /// Called by all members. members: ranks of the parent, the caller among them; the order is that of the ranks here.
  /// context: a number that all members pass, and that no other subset of the parent has which shares two ranks with
  /// this one.
  SubsetBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> members, int context);
  ~SubsetBootstrap() override;
  SubsetBootstrap(const SubsetBootstrap&) = delete;
  SubsetBootstrap& operator=(const SubsetBootstrap&) = delete;

  int getRank() const override { return rank_; }
  int getNranks() const override { return static_cast<int>(members_.size()); }
  int getNranksPerNode() const override { return ranksPerNode_; }

  void send(void* data, int size, int peer, int tag) override;
  void recv(void* data, int size, int peer, int tag) override;
  void allGather(void* allData, int size) override;
  void barrier() override;
  /// One of `ranks`, which are one at least, whose next message of this tag a recv would not wait for, once there is
  /// one: it has arrived, or cannot come. Of a parent that is a TcpBootstrap.
  int waitForAny(const std::vector<int>& ranks, int tag);

  /// Tells the other members that this one leaves the subset, without an effect on other subsets: what they wait for it
  /// in the subset ends as if it had left the job. This rank makes no more calls. Any thread may call it.
  void leave() noexcept;
  /// This rank makes no more calls, and hears of no more failures and departures: gives the parent up, which ends with
  /// its last owner. Called when no call is in progress.
  void disconnect() noexcept;

  /// These abort the parent as well, the first one if a call is blocked: nothing else ends one of the parent's calls,
  /// among which are those of the subset that is being made of the members.
  bool abortBlocked() noexcept override;
  void abort() noexcept override;

  std::optional<RankFailure> failure() const override;
  Subscription onFailure(FailureCallback callback) override;
  Subscription onLaterFailure(FailureCallback callback) override;
  Subscription onDeparture(DepartureCallback callback) override;
  void unsubscribe(Subscription subscription) noexcept override;

 private:
  class Call;

  /// The rank here of a rank of the parent, if it is a member.
  std::optional<int> findMember(int parentRank) const;
  int parentRankOf(int rank) const;
  int parentTagOf(int tag) const;
  struct Subscriptions {
    std::vector<Subscription> ofParent;
    ContextDepartures::Subscription ofContext = 0;  // 0: none
  };
  Subscription add(Subscriptions subscriptions);
  void end(const Subscriptions& subscriptions) noexcept;

  // Null when disconnected.
  std::shared_ptr<Bootstrap> parent_;
  FailureDetector* detector_;  // the parent's; null if it detects no failures
  TcpBootstrap* contexts_;     // the parent, if it has contexts
  const std::vector<int> members_;
  const int context_;
  int rank_ = -1;
  int ranksPerNode_ = 0;
  std::atomic<int> activeCalls_ = 0;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> hasLeft_ = false;
  mutable std::mutex mutex_;
  std::map<Subscription, Subscriptions> subscriptions_;  // what each one here consists of
  Subscription lastSubscription_ = 0;
};

}  // namespace mscclpp::detail
