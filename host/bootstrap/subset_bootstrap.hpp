// A bootstrap over some of the ranks of another one: it has no connections of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

/// Exchanges blocks of `bytes` bytes among some ranks of a bootstrap: `all` has one for each member, in their order;
/// the caller, the member at `position`, has filled in its own. Called by all members, with the same list; no other
/// rank takes part. Throws what the bootstrap throws.
void allGatherAmong(Bootstrap& bootstrap, const std::vector<int>& members, int position, void* all, int bytes, int tag);

/// Passes messages on to the parent with the ranks translated, and tags that only this context uses. Failures and
/// departures are reported for the members alone, with their numbers here; but once any rank of the parent has failed,
/// calls of this bootstrap throw what those of the parent do.
class SubsetBootstrap : public Bootstrap, public FailureDetector {
 public:
  /// Tags below this can be used, of any bootstrap that has subsets too: the others are for the subsets.
  static constexpr int tags = 1 << 16;
  /// Contexts are 1 to this.
  static constexpr int maxContext = (1 << 15) - 1;

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
  Subscription add(std::vector<Subscription> ofParent);

  const std::shared_ptr<Bootstrap> parent_;
  FailureDetector* const detector_;  // the parent's; null if it detects no failures
  const std::vector<int> members_;
  const int context_;
  int rank_ = -1;
  int ranksPerNode_ = 0;
  std::atomic<int> activeCalls_ = 0;
  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;
  std::map<Subscription, std::vector<Subscription>> subscriptions_;  // those of the parent for each one here
  Subscription lastSubscription_ = 0;
};

}  // namespace mscclpp::detail
