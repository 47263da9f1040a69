// All-gathers and all-to-alls whose ranks have different counts, as messages of an exchange.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/kernels/collective_call.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

/// A message to and one from each rank.
class VariableCountMessages {
 public:
  explicit VariableCountMessages(std::size_t ranks) : ranks_(ranks) {}

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

/// Elements of an array for each rank, or from each: [r]: rank r's number, and where they begin.
struct ElementsOfRanks {
  std::span<const std::size_t> counts, offsets;
};

/// Of rank `rank`; arguments as those of Collectives::allGatherV and allToAllV. Both throw Error(InvalidUsage) for
/// wrong ones, also if data is received where other data is sent from. What a rank sends to itself may stay in its
/// place. The messages of an exchange are not checked so: programs for NCCL send and receive data that they do not read
/// at one place.
VariableCountMessages messagesOfAllGather(int rank, int ranks, const void* input, void* output,
                                          const ElementsOfRanks& elements, DataType type);
VariableCountMessages messagesOfAllToAll(int rank, int ranks, const void* input, const ElementsOfRanks& sent,
                                         void* output, const ElementsOfRanks& received, DataType type);

}  // namespace mscclpp::kernels
