// Communicators without some ranks of another one. The excluded ranks do not call, so that no step of all ranks can
// find wrong arguments: each rank tells those that it names, and learns from them.
#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>

#include "host/base/error_message.hpp"
#include "host/base/printable_text.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/exchanged_value.hpp"

namespace mscclpp::nccl {

namespace {

// Beside the tags of the set-ups, none of which runs at the same time.
constexpr int shrinkTag = 1;

std::vector<int> membersOf(const NamedRanks& named) {
  std::vector<int> members;
  for (std::size_t r = 0; r < named.size(); ++r) {
    if (named[r] != 0) members.push_back(static_cast<int>(r));
  }
  return members;
}

bool names(const NamedRanks& named, int rank) {
  return named[static_cast<std::size_t>(rank)] != 0;
}

std::string textOfExcluded(const NamedRanks& named) {
  std::string text;
  for (std::size_t r = 0; r < named.size(); ++r) {
    if (named[r] == 0) text += (text.empty() ? "" : ", ") + std::to_string(r);
  }
  return text.empty() ? "nothing" : text;
}

/// What a rank tells another; the ranks that it names follow.
struct Notice {
  int context;  ///< for the new communicator: that of its first rank counts
  bool isAbort;
  bool isFailed;
  std::array<char, 250> reason;  ///< if failed; ends with a zero
};

Notice failureNotice(const Error& error) {
  Notice notice{};
  notice.isFailed = true;
  detail::messageOf(error).copy(notice.reason.data(), notice.reason.size() - 1);
  return notice;
}

void tell(Bootstrap& bootstrap, int rank, const Notice& notice, const NamedRanks& named) {
  std::vector<char> message = toBytes(notice);
  message.insert(message.end(), named.begin(), named.end());
  bootstrap.send(message.data(), static_cast<int>(message.size()), rank, shrinkTag);
}

/// Where connections may have failed: whoever can be told.
void tellAll(Bootstrap& bootstrap, const std::vector<int>& ranks, const Notice& notice, const NamedRanks& named) {
  for (const int rank : ranks) {
    if (rank == bootstrap.getRank()) continue;
    try {
      tell(bootstrap, rank, notice, named);
    } catch (const Error&) {  // it has left
    }
  }
}

std::pair<Notice, NamedRanks> hear(Bootstrap& bootstrap, int rank) {
  std::vector<char> message(sizeof(Notice) + static_cast<std::size_t>(bootstrap.getNranks()));
  bootstrap.recv(message.data(), static_cast<int>(message.size()), rank, shrinkTag);
  const auto end = message.begin() + sizeof(Notice);
  return {valueOf<Notice>({message.begin(), end}), {end, message.end()}};
}

/// The others connect anew, and wait for this rank there.
class OthersConnectAnew : public ApiError {
 public:
  explicit OthersConnectAnew(const std::string& message) : ApiError(ncclInvalidArgument, message) {}
};

[[noreturn]] void throwDifferent(const std::string& who, const NamedRanks& named, const NamedRanks& own) {
  throwInvalidArgument(who + " excludes " + textOfExcluded(named) + ", and this rank " + textOfExcluded(own) +
                       ": all ranks that call it must pass the same excludeRanksList");
}

void requireSame(const Notice& notice, const NamedRanks& named, int peer, const NamedRanks& own) {
  const std::string who = "rank " + std::to_string(peer);
  if (notice.isFailed) {
    throw Error("the shrink: " + who + " failed: " + detail::printableText(notice.reason.data()),
                ErrorCode::RemoteError);
  }
  if (notice.isAbort) {
    throw OthersConnectAnew(who + " passes NCCL_SHRINK_ABORT, or has revoked the communicator, and this rank has not");
  }
  if (named != own) throwDifferent(who, named, own);
}

/// Called by the ranks that shrink, with the ranks that each names, itself among them, and a context. Returns that of
/// the first. Throws on all of them if one of them names others than another, or has failed. earlier: what this rank
/// has named before.
int agree(detail::SubsetBootstrap& bootstrap, const NamedRanks& own, int ownContext,
          const std::set<NamedRanks>& earlier) {
  std::vector<int> awaited = membersOf(own);
  const int first = awaited.front();
  std::erase(awaited, bootstrap.getRank());
  for (const int peer : awaited) tell(bootstrap, peer, {ownContext, false, false, {}}, own);
  int context = ownContext;
  // In any order: a rank that is named by mistake says nothing, but others do.
  while (!awaited.empty()) {
    const int peer = bootstrap.waitForAny(awaited, shrinkTag);
    const auto [notice, named] = hear(bootstrap, peer);
    // That of a rank which has called a shrink that excluded it.
    if (!names(named, peer) && earlier.contains(named)) continue;
    try {
      requireSame(notice, named, peer, own);
    } catch (const Error& error) {
      // Those that the peer names, and this rank does not, wait for this rank.
      std::vector<int> others = membersOf(named);
      std::erase_if(others, [&](int rank) { return names(own, rank); });
      tellAll(bootstrap, others, failureNotice(error), own);
      throw;
    }
    if (peer == first) context = notice.context;
    std::erase(awaited, peer);
  }
  return context;
}

}  // namespace

// Each of them may be the first of those that connect anew: it depends on the ranks that the others name.
void Comm::giveUpReconnecting(const std::vector<int>& members, const Error& why) const {
  for (const int member : members) {
    const UniqueId& id = successorIds_[static_cast<std::size_t>(member)];
    const bool hasTold =
        member == rank() ? RankSet::refuse(id, why, static_cast<int>(members.size()) - 1) : RankSet::giveUp(id, rank());
    if (hasTold) return;
  }
}

std::shared_ptr<Comm> Comm::shrink(std::span<const int> excluded, const std::function<CommConfig()>& readConfig,
                                   int flags) {
  const DeviceScope scope(device_);
  detail::SubsetBootstrap& bootstrap = *ranks_.bootstrap();
  const bool connectsAnew = flags == shrinkAbort || isRevoked();
  NamedRanks named(static_cast<std::size_t>(size()), 1);
  std::vector<int> callers = membersOf(named);  // as far as this rank knows
  CommConfig config;
  try {
    for (const int rank : excluded) {
      if (rank < 0 || rank >= size()) throwInvalidArgument("there is no rank " + std::to_string(rank) + " to exclude");
      named[static_cast<std::size_t>(rank)] = 0;
    }
    if (!names(named, rank())) throwInvalidArgument("this rank is one of the excluded ones, which do not call it");
    config = readConfig();
    callers = membersOf(named);
    if (flags != shrinkDefault && flags != shrinkAbort) throwInvalidArgument("unknown flags " + std::to_string(flags));
    if (connectsAnew) {
      tellAll(bootstrap, callers, {0, true, false, {}}, named);
      revoke();
    } else {
      requireReady();
      if (hasFailedShrink_) {  // what ranks have told this one then may be left
        throwInvalidUsage(
            "a shrink of this communicator has failed: split it, shrink it with NCCL_SHRINK_ABORT, or make a new one");
      }
    }
  } catch (const Error& error) {
    tellAll(bootstrap, callers, failureNotice(error), named);
    if (connectsAnew && names(named, rank())) giveUpReconnecting(callers, error);
    hasFailedShrink_ = true;
    throw;
  }
  if (connectsAnew) {
    PendingConnection connection({&pendingConnections_});
    const RankSet ranks = reconnect(callers, connection);
    const detail::GroupAgreement agreement(*ranks.bootstrap(), "the shrink");
    for (const NamedRanks& other : agreement.runStep("state which ranks it excludes", [&] { return named; })) {
      if (other != named) throwDifferent("another rank", other, named);
    }
    return std::make_shared<Comm>(ranks, config);
  }
  const detail::GroupSetup setup(*resources_->communicator);
  int context = callers.front() == rank() ? ranks_.newContext() : 0;  // rank 0 may be one of the excluded ones
  hasFailedShrink_ = true;                                            // until it has not
  try {
    context = agree(bootstrap, named, context, shrunkTo_);
  } catch (const OthersConnectAnew& error) {
    giveUpReconnecting(callers, error);
    throw;
  }
  hasFailedShrink_ = false;
  shrunkTo_.insert(named);
  return std::make_shared<Comm>(ranks_.subset(callers, context), config);
}

}  // namespace mscclpp::nccl
