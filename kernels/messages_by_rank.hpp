// All-gathers and all-to-alls whose ranks have different counts, as messages of an exchange.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

/// A message to and one from each rank, which have no values until they are set. ranks: at most maxTeamSize.
class MessagesByRank {
 public:
  explicit MessagesByRank(std::size_t ranks) : ranks_(ranks) {}

  std::span<SentMessage> sent() { return {sent_.data(), ranks_}; }
  std::span<const SentMessage> sent() const { return {sent_.data(), ranks_}; }
  std::span<ReceivedMessage> received() { return {received_.data(), ranks_}; }
  std::span<const ReceivedMessage> received() const { return {received_.data(), ranks_}; }

 private:
  static_assert(maxTeamSize <= maxSentMessages && maxTeamSize <= maxReceivedMessages);

  std::size_t ranks_;
  std::array<SentMessage, maxTeamSize> sent_;
  std::array<ReceivedMessage, maxTeamSize> received_;
};

/// For each rank r: counts[r] elements, from element offsets[r] of an array on.
struct PartsOfRanks {
  std::span<const std::size_t> counts, offsets;
};

/// Of rank `rank`; arguments as those of Collectives::allGatherV and allToAllV. Both throw Error(InvalidUsage) for
/// wrong ones, also if data is received where other data is sent from. What a rank sends to itself may stay in its
/// place. Collectives::exchange() does not check its messages so: programs for NCCL send and receive data that they do
/// not read at one place.
MessagesByRank messagesOfAllGatherV(int rank, int ranks, const void* input, void* output, const PartsOfRanks& parts,
                                    DataType type);
MessagesByRank messagesOfAllToAllV(int rank, int ranks, const void* input, const PartsOfRanks& sent, void* output,
                                   const PartsOfRanks& received, DataType type);

}  // namespace mscclpp::kernels
