#include "ranks.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "host/bootstrap/subset_bootstrap.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

namespace {

constexpr const char* storeKey = "mscclpp_unique_id";
constexpr int agreementTag = Ranks::userTags;

/// `count` numbers for new sets of the members, which the first of them chooses.
template <std::size_t count>
std::array<int, count> chooseContexts(const nccl::RankSet& parent, const std::vector<int>& members) {
  const auto own = std::find(members.begin(), members.end(), parent.rank());
  if (own == members.end()) throw Error("this rank is not among the ranks of the split", ErrorCode::InvalidUsage);
  std::vector<std::array<int, count>> all(members.size());
  const auto position = static_cast<std::size_t>(own - members.begin());
  if (position == 0) {
    for (int& context : all.front()) context = parent.newContext();
  }
  detail::allGatherAmong(*parent.bootstrap(), members, static_cast<int>(position), all.data(), sizeof(all.front()),
                         agreementTag);
  if (std::find(all.front().begin(), all.front().end(), 0) != all.front().end()) {
    throw Error(
        "the process group and those split from the same one have been split too often: make a new one with "
        "new_group()",
        ErrorCode::InvalidUsage);
  }
  return all.front();
}

UniqueId exchangeId(c10d::Store& store, int rank) {
  UniqueId id{};
  if (rank == 0) {
    id = TcpBootstrap::createUniqueId();
    store.set(storeKey, std::vector<std::uint8_t>(id.begin(), id.end()));
    return id;
  }
  const std::vector<std::uint8_t> bytes = store.get(storeKey);
  if (bytes.size() != id.size()) {
    throw Error("the store has no unique id of mscclpp: is it shared with another group?", ErrorCode::InvalidUsage);
  }
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

}  // namespace

Ranks Ranks::connect(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
  const UniqueId id = exchangeId(store, rank);
  const nccl::RankSet all = nccl::RankSet::connect(bootstrap, id, timeout);
  // All have read it. The next group over the same store puts another one there.
  if (rank == 0) store.deleteKey(storeKey);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return {std::move(bootstrap), all, members};
}

Ranks::Ranks(std::shared_ptr<TcpBootstrap> connections, const nccl::RankSet& parent, const std::vector<int>& members)
    : cpu(parent), gpu(parent), messages(parent), connections_(std::move(connections)) {
  const auto contexts = chooseContexts<3>(parent, members);
  cpu = parent.subset(members, contexts[0]);
  gpu = parent.subset(members, contexts[1]);
  messages = parent.subset(members, contexts[2]);
}

Ranks Ranks::subset(const std::vector<int>& members) const {
  return {connections_, messages, members};
}

nccl::RankSet Ranks::pairWith(int peer) const {
  const int own = messages.rank();
  const std::vector<int> members{std::min(own, peer), std::max(own, peer)};
  return messages.subset(members, chooseContexts<1>(messages, members)[0]);
}

void Ranks::leave() const noexcept {
  for (const nccl::RankSet* set : {&cpu, &gpu, &messages}) set->leave();
}

}  // namespace mscclpp::torch_c10d
