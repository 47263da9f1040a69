#include "mscclpp/host/communicator/memory_of_ranks.hpp"

#include "host/communicator/group_setup.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

MemoryOfRanks::MemoryOfRanks(const GroupSetup& setup, std::string name, int rank, const RegisteredMemory& own,
                             const std::vector<std::vector<char>>& serialized)
    : name_(std::move(name)), rank_(rank) {
  for (int peer = 0; peer < static_cast<int>(serialized.size()); ++peer) {
    const std::vector<char>& bytes = serialized[static_cast<std::size_t>(peer)];
    if (peer == rank) {
      parts_.push_back(own);
    } else if (bytes.empty()) {
      parts_.emplace_back();
    } else {
      parts_.push_back(setup.callPeer(name_ + ": memory of rank ", peer,
                                      [&](const Deadline& deadline) { return deserializeMemory(bytes, deadline); }));
    }
  }
}

const RegisteredMemory& MemoryOfRanks::at(int rank) const {
  if (rank < 0 || rank >= nRanks()) {
    throw Error(name_ + ": there is no rank " + std::to_string(rank) + " among " + std::to_string(nRanks()),
                ErrorCode::InvalidUsage);
  }
  return parts_[static_cast<std::size_t>(rank)];
}

void MemoryOfRanks::fillWindow(std::byte** bases, int ranks) const {
  if (ranks > 0 && ranks != nRanks()) {
    throw Error(name_ + ": a window of " + std::to_string(ranks) + " ranks was asked for, and here are " +
                    std::to_string(nRanks()) + "; use window<>() if the number is known only at run time",
                ErrorCode::InvalidUsage);
  }
  if (nRanks() > maxTeamSize) {
    throw Error(name_ + ": a window has up to " + std::to_string(maxTeamSize) + " ranks, and here are " +
                    std::to_string(nRanks()),
                ErrorCode::InvalidUsage);
  }
  for (int rank = 0; rank < nRanks(); ++rank) bases[rank] = static_cast<std::byte*>(at(rank).data());
}

}  // namespace mscclpp::detail
