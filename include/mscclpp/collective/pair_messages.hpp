// The messages of a call that has many, listed by ordered pair of ranks: plain values for host and device.
#pragma once

#include "mscclpp/arch/word.hpp"

namespace mscclpp {

/// The place of a rank in an ordered pair. Alone: sender and receiver are the same rank.
enum class PairSide : std::uint8_t { Sender, Receiver, Alone };

/// The messages for one ordered pair: `count` consecutive ones of a list, from `first` on.
struct PairMessages {
  std::uint8_t peer;
  PairSide side;  ///< of this rank; Alone: peer is this rank, and the messages have both source and sink
  std::uint8_t first;
  std::uint8_t count;
};

}  // namespace mscclpp
