#include "host/bootstrap/subset_bootstrap.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "host/base/process_identity.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

// The largest tag of a context, which no caller has a use for.
constexpr int allGatherTag = SubsetBootstrap::tags - 1;

/// Exchanges blocks of `bytes` bytes: `all` has one for each member, in their order; the caller, the member at
/// `position`, has filled in its own.
void allGatherAmong(Bootstrap& bootstrap, const std::vector<int>& members, int position, void* all, int bytes,
                    int tag) {
  const auto blockOf = [&](std::size_t member) {
    return static_cast<char*>(all) + member * static_cast<std::size_t>(bytes);
  };
  const auto own = static_cast<std::size_t>(position);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i != own) bootstrap.send(blockOf(own), bytes, members[i], tag);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i != own) bootstrap.recv(blockOf(i), bytes, members[i], tag);
  }
}

}  // namespace

// The scope of a call that may block.
class SubsetBootstrap::Call {
 public:
  explicit Call(SubsetBootstrap& bootstrap) : activeCalls_(bootstrap.activeCalls_) {
    ++activeCalls_;
    if (!bootstrap.aborted_) return;
    --activeCalls_;
    throw Error("the communicator was aborted; make a new one", ErrorCode::Aborted);
  }
  ~Call() { --activeCalls_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  std::atomic<int>& activeCalls_;
};

SubsetBootstrap::SubsetBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> members, int context)
    : parent_(std::move(parent)),
      detector_(dynamic_cast<FailureDetector*>(parent_.get())),
      contexts_(dynamic_cast<TcpBootstrap*>(parent_.get())),
      members_(std::move(members)),
      context_(context) {
  if (context < 1 || context > maxContext) {
    throw Error("SubsetBootstrap: the context must be 1 to " + std::to_string(maxContext), ErrorCode::InvalidUsage);
  }
  const auto self = findMember(parent_->getRank());
  if (!self) throw Error("SubsetBootstrap: the caller is not a member", ErrorCode::InvalidUsage);
  rank_ = *self;
  ranksPerNode_ = getNranks();
  if (parent_->getNranksPerNode() == parent_->getNranks()) return;
  std::vector<std::uint64_t> hosts(members_.size(), hostHash());
  allGather(hosts.data(), sizeof(std::uint64_t));
  ranksPerNode_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), hostHash()));
}

SubsetBootstrap::~SubsetBootstrap() {
  disconnect();
}

void SubsetBootstrap::disconnect() noexcept {
  aborted_ = true;
  std::map<Subscription, Subscriptions> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(subscriptions_);
  }
  for (const auto& [own, subscriptions] : ended) end(subscriptions);
  if (contexts_ != nullptr) contexts_->contextDepartures().close(context_);
  contexts_ = nullptr;
  detector_ = nullptr;
  parent_.reset();
}

void SubsetBootstrap::end(const Subscriptions& subscriptions) noexcept {
  for (const Subscription each : subscriptions.ofParent) detector_->unsubscribe(each);
  if (subscriptions.ofContext != 0) contexts_->contextDepartures().unsubscribe(subscriptions.ofContext);
}

std::optional<int> SubsetBootstrap::findMember(int parentRank) const {
  const auto found = std::find(members_.begin(), members_.end(), parentRank);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

int SubsetBootstrap::parentRankOf(int rank) const {
  if (rank >= 0 && rank < getNranks()) return members_[static_cast<std::size_t>(rank)];
  throw Error("there is no rank " + std::to_string(rank) + " among " + std::to_string(getNranks()),
              ErrorCode::InvalidUsage);
}

int SubsetBootstrap::parentTagOf(int tag) const {
  if (tag >= 0 && tag < tags) return context_ * tags + tag;
  throw Error("the tag is " + std::to_string(tag) + "; this bootstrap has 0 to " + std::to_string(tags - 1),
              ErrorCode::InvalidUsage);
}

void SubsetBootstrap::send(void* data, int size, int peer, int tag) {
  const Call call(*this);
  parent_->send(data, size, parentRankOf(peer), parentTagOf(tag));
}

void SubsetBootstrap::recv(void* data, int size, int peer, int tag) {
  const Call call(*this);
  parent_->recv(data, size, parentRankOf(peer), parentTagOf(tag));
}

void SubsetBootstrap::allGather(void* allData, int size) {
  const Call call(*this);
  allGatherAmong(*parent_, members_, rank_, allData, size, parentTagOf(allGatherTag));
}

void SubsetBootstrap::barrier() {
  std::vector<int> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  groupBarrier(all);
}

int SubsetBootstrap::waitForAny(const std::vector<int>& ranks, int tag) {
  const Call call(*this);
  std::vector<int> ofParent;
  for (const int rank : ranks) ofParent.push_back(parentRankOf(rank));
  return *findMember(contexts_->waitForAny(ofParent, parentTagOf(tag)));
}

void SubsetBootstrap::leave() noexcept {
  if (contexts_ == nullptr || hasLeft_.exchange(true)) return;
  contexts_->leaveContext(context_, members_);
}

bool SubsetBootstrap::abortBlocked() noexcept {
  if (activeCalls_ == 0) return false;
  abort();
  return true;
}

void SubsetBootstrap::abort() noexcept {
  aborted_ = true;
  if (parent_ != nullptr) parent_->abort();
}

std::optional<RankFailure> SubsetBootstrap::failure() const {
  const auto first = detector_ == nullptr ? std::nullopt : detector_->failure();
  if (!first) return std::nullopt;
  const auto member = findMember(first->rank);
  return member ? std::optional(RankFailure{*member, first->reason}) : std::nullopt;
}

FailureDetector::Subscription SubsetBootstrap::add(Subscriptions subscriptions) {
  const std::lock_guard lock(mutex_);
  subscriptions_[++lastSubscription_] = std::move(subscriptions);
  return lastSubscription_;
}

// The parent's first failure may be that of another rank: then the first one of a member is a later one there.
FailureDetector::Subscription SubsetBootstrap::onFailure(FailureCallback callback) {
  if (!callback) throw Error("onFailure: the callback must not be null", ErrorCode::InvalidUsage);
  if (detector_ == nullptr) return add({});
  const auto report = [this, callback = std::move(callback),
                       isReported = std::make_shared<std::atomic<bool>>(false)](const RankFailure& failure) {
    const auto member = findMember(failure.rank);
    if (member && !isReported->exchange(true)) callback({*member, failure.reason});
  };
  return add({{detector_->onFailure(report), detector_->onLaterFailure(report)}});
}

FailureDetector::Subscription SubsetBootstrap::onLaterFailure(FailureCallback callback) {
  if (!callback) throw Error("onLaterFailure: the callback must not be null", ErrorCode::InvalidUsage);
  if (detector_ == nullptr) return add({});
  const auto isFirstPast = std::make_shared<std::atomic<bool>>(false);
  const auto report = [this, callback = std::move(callback), isFirstPast](const RankFailure& failure) {
    const auto member = findMember(failure.rank);
    if (member && isFirstPast->exchange(true)) callback({*member, failure.reason});
  };
  return add({{detector_->onFailure(report), detector_->onLaterFailure(report)}});
}

FailureDetector::Subscription SubsetBootstrap::onDeparture(DepartureCallback callback) {
  if (!callback) throw Error("onDeparture: the callback must not be null", ErrorCode::InvalidUsage);
  if (detector_ == nullptr) return add({});
  // A member that has left the subset may leave the job later: the callback runs once.
  const auto report = [this, callback = std::move(callback),
                       reported = std::make_shared<std::vector<std::atomic<bool>>>(members_.size())](int parentRank) {
    const auto member = findMember(parentRank);
    if (member && !(*reported)[static_cast<std::size_t>(*member)].exchange(true)) callback(*member);
  };
  Subscriptions subscriptions{{detector_->onDeparture(report)}};
  if (contexts_ != nullptr) subscriptions.ofContext = contexts_->contextDepartures().subscribe(context_, report);
  return add(std::move(subscriptions));
}

void SubsetBootstrap::unsubscribe(Subscription subscription) noexcept {
  Subscriptions removed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = subscriptions_.find(subscription);
    if (found == subscriptions_.end()) return;
    removed = std::move(found->second);
    subscriptions_.erase(found);
  }
  end(removed);
}

}  // namespace mscclpp::detail
