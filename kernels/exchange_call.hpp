// The run-time arguments of the kernel of an exchange: a list of messages, which is made from those of a call.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "algorithms.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/pair_messages.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The messages of a call, by ordered pair of ranks; those of a pair are in the order of the call. Without messages of
/// zero bytes, and without those to oneself whose input is their output.
struct MessageList {
  static constexpr std::size_t capacity = maxSentMessages + maxReceivedMessages;

  struct Message {
    const void* input;  ///< null if this rank does not send it
    void* output;       ///< null if it does not receive it
    std::size_t bytes;
    std::size_t algorithm;  ///< an index in algorithmTable; set by the caller of messageListOf()
  };
  int count = 0;
  int pairCount = 0;
  std::array<Message, capacity> messages;
  std::array<PairMessages, capacity> pairs;
};

/// Throws Error(InvalidUsage) with what is wrong with messages: their ranks, sizes or addresses.
void requireValidMessages(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, int ranks);

/// The list of a call of rank `rank`. The pairs with near ranks come first, in both directions, so that ranks which
/// send to each other list those pairs at about the same place. Throws Error(InvalidUsage) with what is wrong with the
/// messages.
MessageList messageListOf(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, int rank,
                          int ranks);

/// A list with one message for each pair, which all messages of the pair are joined to (collective/joined_arrays.hpp).
/// Its messages have sizes, and no arrays; pair p has message p.
MessageList joinedByPair(const MessageList& list);

/// The arguments of the kernel.
struct ExchangeCall {
  /// The scratch of an algorithm; those that are not set up are not used.
  struct Place {
    std::size_t offset;  ///< in the window
    std::size_t capacity;
    PipelineShape pipeline;
  };
  int rank;
  int ranks;
  std::byte* const* window;  ///< `ranks` addresses
  std::array<Place, messageAlgorithms> places;
  BoundedWait wait;
  const MessageList& list;
  const MessageList* joined;  ///< what joinedByPair() has made `list` of; null: the messages are not joined
  LaunchShape shape;          ///< GPU only
  CUstream_st* stream;        ///< GPU only
  KernelStart start;          ///< GPU only
};

// Of each backend: run the call (CPU) or enqueue it (GPU). Return 0 or a cudaError_t.
namespace gpu {
int exchange(const ExchangeCall& call);
}
namespace cpu {
int exchange(const ExchangeCall& call);
}

}  // namespace mscclpp::kernels
