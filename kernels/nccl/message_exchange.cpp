// To be replaced by Collectives::exchange, which performs all messages in one launch.
#include "kernels/nccl/message_exchange.hpp"

#include <algorithm>
#include <vector>

#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

namespace {

template <class Message>
using PerPeer = std::vector<std::vector<const Message*>>;

template <class Message>
const Message* find(const PerPeer<Message>& messages, int peer, std::size_t round) {
  const auto& ofPeer = messages[static_cast<std::size_t>(peer)];
  return round < ofPeer.size() ? ofPeer[round] : nullptr;
}

}  // namespace

// Round k has the k-th message of each pair; in its step s, rank r sends to r + s. So both ranks of a message have it
// at the same (round, step), and the first one that is not complete anywhere can always proceed.
void exchange(Collectives& collectives, int rank, int ranks, std::span<const SentMessage> sends,
              std::span<const ReceivedMessage> receives, CUstream_st* stream) {
  PerPeer<SentMessage> sent(static_cast<std::size_t>(ranks));
  PerPeer<ReceivedMessage> received(static_cast<std::size_t>(ranks));
  std::size_t rounds = 0;
  for (const SentMessage& message : sends) {
    auto& ofPeer = sent[static_cast<std::size_t>(message.destination)];
    ofPeer.push_back(&message);
    rounds = std::max(rounds, ofPeer.size());
  }
  for (const ReceivedMessage& message : receives) {
    auto& ofPeer = received[static_cast<std::size_t>(message.origin)];
    ofPeer.push_back(&message);
    rounds = std::max(rounds, ofPeer.size());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (int step = 0; step < ranks; ++step) {
      const int destination = (rank + step) % ranks;
      const int origin = (rank - step + ranks) % ranks;
      const SentMessage* out = find(sent, destination, round);
      const ReceivedMessage* in = find(received, origin, round);
      if (out == nullptr && in == nullptr) continue;
      if (step == 0 && (out == nullptr || in == nullptr || out->bytes != in->bytes)) {
        throwInvalidUsage("a message of a rank to itself needs both ncclSend and ncclRecv in one group, of one size");
      }
      collectives.sendReceive(out == nullptr ? nullptr : out->data, out == nullptr ? 0 : out->bytes,
                              out == nullptr ? -1 : destination, in == nullptr ? nullptr : in->data,
                              in == nullptr ? 0 : in->bytes, in == nullptr ? -1 : origin, DataType::UINT8, stream);
    }
  }
}

}  // namespace mscclpp::nccl
