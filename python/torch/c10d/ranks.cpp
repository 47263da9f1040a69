#include "ranks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

namespace {

constexpr const char* storeKey = "mscclpp_unique_id";

/// `count` numbers for new sets of the members, which the lowest of them chooses.
template <std::size_t count>
std::array<int, count> chooseContexts(const nccl::RankSet& parent, const std::vector<int>& members) {
  const detail::GroupAgreement agreement(*parent.bootstrap(), members, "the process group");
  const auto answers = agreement.runStep("split", [&]() -> std::vector<char> {
    if (agreement.groupRank() != 0) return {};
    std::vector<char> bytes(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int context = parent.newContext();
      if (context == 0) {
        throw Error("it and those split from the same one have been split too often: make a new one with new_group()",
                    ErrorCode::InvalidUsage);
      }
      std::memcpy(bytes.data() + i * sizeof(int), &context, sizeof(int));
    }
    return bytes;
  });
  std::array<int, count> contexts{};
  std::memcpy(contexts.data(), answers.front().data(), sizeof(contexts));
  return contexts;
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
