#include "kernels/nccl/rank_set.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "host/base/process_identity.hpp"
#include "host/bootstrap/rendezvous.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

namespace {

// Ranks may come late, but a rank 0 that does not come at all should be noticed before the day ends.
constexpr std::chrono::minutes longestConnect{30};

// That of the set which the connections are made for: the first one that rank 0 would give.
constexpr int firstContext = 1;

/// Different for different arguments: the odd ones are those of rank 0, which chooses most often, and the others share
/// the even ones.
int contextOf(int given, int rank, int ranks) {
  return rank == 0 ? 2 * given + firstContext : 2 * (given * (ranks - 1) + rank);
}

}  // namespace

RankSet RankSet::connect(std::shared_ptr<TcpBootstrap> bootstrap, const UniqueId& id,
                         std::chrono::milliseconds timeout) {
  const std::chrono::milliseconds limit = std::min<std::chrono::milliseconds>(timeout, longestConnect);
  bootstrap->setTimeout(timeout);
  bootstrap->initialize(id, std::chrono::ceil<std::chrono::seconds>(limit).count());
  RankSet set;
  set.members_.resize(static_cast<std::size_t>(bootstrap->getNranks()));
  std::iota(set.members_.begin(), set.members_.end(), 0);
  set.connections_ = std::make_shared<Connections>();
  set.connections_->bootstrap = std::move(bootstrap);
  // A context of its own, so that a rank can leave it while others go on over the same connections.
  if (set.connections_->bootstrap->getRank() == 0) set.connections_->contextsGiven = 1;
  set.bootstrap_ = std::make_shared<detail::SubsetBootstrap>(set.connections_->bootstrap, set.members_, firstContext);
  set.key_ = {id, firstContext, 0};
  return set;
}

bool RankSet::refuse(const UniqueId& id, const std::exception& reason, int count) noexcept {
  try {
    const detail::LocalRankInfo self{0, count + 1, detail::hostHash(), env()->socketIfname, env()->socketFamily};
    return detail::refuseRanks(self, detail::fromUniqueId(id), reason, count) > 0;
  } catch (const std::exception&) {  // they time out
    return false;
  }
}

bool RankSet::giveUp(const UniqueId& id, int rank) noexcept {
  try {
    return detail::giveUpJoining(rank, detail::fromUniqueId(id));
  } catch (const std::exception&) {  // there is no such id
    return false;
  }
}

int RankSet::newContext() const noexcept {
  const TcpBootstrap& all = *connections_->bootstrap;
  std::atomic<int>& given = connections_->contextsGiven;
  for (int next = given;;) {
    const int context = contextOf(next, all.getRank(), all.getNranks());
    if (context > detail::SubsetBootstrap::maxContext) return 0;
    if (given.compare_exchange_weak(next, next + 1)) return context;
  }
}

void RankSet::disconnect() noexcept {
  bootstrap_->disconnect();
  connections_.reset();
}

RankSet RankSet::subset(const std::vector<int>& members, int context) const {
  if (context == 0) {
    throwInvalidUsage(
        "the communicator and those split from the same one have been split too often (docs/nccl.md "
        "says how often they can be): create a communicator with ncclCommInitRank");
  }
  RankSet set;
  set.connections_ = connections_;
  for (const int member : members) set.members_.push_back(members_[static_cast<std::size_t>(member)]);
  set.bootstrap_ = std::make_shared<detail::SubsetBootstrap>(connections_->bootstrap, set.members_, context);
  set.key_ = {key_.id, context, set.members_.front()};
  return set;
}

}  // namespace mscclpp::nccl
