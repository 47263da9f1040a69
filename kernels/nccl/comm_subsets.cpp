// Communicators of some ranks of another one: splits, and what replaces a revoked one.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/exchanged_value.hpp"

namespace mscclpp::nccl {

namespace {

/// What the ranks of a communicator that is split tell each other.
struct Choice {
  int color;
  int key;
  int rank;
  int context;  // of the parts: that of rank 0 counts
};

}  // namespace

RankSet Comm::reconnect(const std::vector<int>& members, PendingConnection& connection) {
  const auto own = std::find(members.begin(), members.end(), rank());
  if (own == members.end()) throwInvalidArgument("this rank is one of the excluded ones, which do not call it");
  {
    const std::lock_guard lock(mutex_);
    if (!usedSuccessors_.insert(members.front()).second) {
      throwInvalidUsage(
          "the communicator was revoked, and has been split or shrunk since: make a new one with ncclCommInitRank");
    }
  }
  return connection.connect(successorIds_[static_cast<std::size_t>(members.front())], static_cast<int>(members.size()),
                            static_cast<int>(own - members.begin()));
}

std::shared_ptr<Comm> Comm::split(int color, int key, const std::function<CommConfig()>& readConfig) {
  const DeviceScope scope(device_);
  // The connections of a revoked communicator may have failed with it.
  PendingConnection connection({&pendingConnections_});
  std::optional<detail::GroupSetup> setup;
  RankSet ranks = ranks_;
  if (isRevoked()) {
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    ranks = reconnect(all, connection);
  } else {
    requireReady();
    setup.emplace(*resources_->communicator);
  }
  // Wrong arguments of one rank are an error of all of them: the others wait here.
  const detail::GroupAgreement agreement(*ranks.bootstrap(), "the split");
  CommConfig config;
  const auto answers = agreement.runStep("choose a color", [&] {
    if (color < splitNoColor) throwInvalidArgument("color must be NCCL_SPLIT_NOCOLOR or not negative");
    config = readConfig();
    return toBytes(Choice{color, key, rank(), rank() == 0 ? ranks.newContext() : 0});
  });
  std::vector<Choice> choices;
  for (const auto& answer : answers) choices.push_back(valueOf<Choice>(answer));
  const int context = choices.front().context;
  if (color == splitNoColor) return nullptr;
  std::erase_if(choices, [color](const Choice& choice) { return choice.color != color; });
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  std::vector<int> members;
  for (const Choice& choice : choices) members.push_back(choice.rank);
  return std::make_shared<Comm>(ranks.subset(members, context), config);
}

}  // namespace mscclpp::nccl
