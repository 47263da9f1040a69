#include "kernels/nccl/rank_set.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>

#include "kernels/nccl/result.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

namespace {

// Ranks may come late, but a rank 0 that does not come at all should be noticed before the day ends.
constexpr std::chrono::minutes longestConnect{30};

}  // namespace

RankSet RankSet::connect(const UniqueId& id, int ranks, int rank) {
  RankSet set;
  set.connections_ = std::make_shared<Connections>();
  set.connections_->bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  const std::chrono::milliseconds limit = std::min<std::chrono::milliseconds>(env()->ncclTimeout, longestConnect);
  set.connections_->bootstrap->setTimeout(env()->ncclTimeout);
  set.connections_->bootstrap->initialize(id, std::chrono::ceil<std::chrono::seconds>(limit).count());
  set.members_.resize(static_cast<std::size_t>(ranks));
  std::iota(set.members_.begin(), set.members_.end(), 0);
  // A context of its own, so that a rank can leave it while others go on over the same connections.
  const int context = set.freeContext();
  set.useContext(context);
  set.bootstrap_ = std::make_shared<detail::SubsetBootstrap>(set.connections_->bootstrap, set.members_, context);
  set.key_ = {id, context, 0};
  return set;
}

int RankSet::freeContext() const noexcept {
  return connections_->freeContext;
}

void RankSet::useContext(int context) const {
  if (context > detail::SubsetBootstrap::maxContext) {
    throwInvalidUsage("a communicator and those split from it can be split " +
                      std::to_string(detail::SubsetBootstrap::maxContext) +
                      " times: create a communicator with ncclCommInitRank");
  }
  connections_->freeContext = context + 1;
}

RankSet RankSet::subset(const std::vector<int>& members, int context) const {
  RankSet set;
  set.connections_ = connections_;
  for (const int member : members) set.members_.push_back(members_[static_cast<std::size_t>(member)]);
  set.bootstrap_ = std::make_shared<detail::SubsetBootstrap>(connections_->bootstrap, set.members_, context);
  set.key_ = {key_.id, context, set.members_.front()};
  return set;
}

}  // namespace mscclpp::nccl
