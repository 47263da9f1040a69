#include "message_exchange.hpp"

#include <map>
#include <utility>
#include <vector>

#include "exchange_call.hpp"

namespace mscclpp::kernels {

namespace {

/// The place of a message in an order that its two ranks agree on: it is the k-th from one to the other, and that many
/// ranks further.
using Place = std::pair<int, int>;

/// What a rank sends and receives at a place; null: nothing.
struct Messages {
  const SentMessage* sent = nullptr;
  const ReceivedMessage* received = nullptr;
};

void exchangeInParts(Collectives& collectives, const std::map<Place, Messages>& ordered, CUstream_st* stream) {
  std::vector<SentMessage> sends;
  std::vector<ReceivedMessage> receives;
  const auto perform = [&] {
    collectives.exchange(sends, receives, stream);
    sends.clear();
    receives.clear();
  };
  for (const auto& [place, messages] : ordered) {
    if (messages.sent != nullptr) sends.push_back(*messages.sent);
    if (messages.received != nullptr) receives.push_back(*messages.received);
    if (sends.size() == maxSentMessages || receives.size() == maxReceivedMessages) perform();
  }
  if (!sends.empty() || !receives.empty()) perform();
}

}  // namespace

// A call that waits does so for a message whose other rank is in an earlier call, and waits there for a message at an
// earlier place: places only become smaller along such a chain, so it ends at a rank that does not wait.
void exchange(Collectives& collectives, std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
              CUstream_st* stream) {
  if (sends.size() <= maxSentMessages && receives.size() <= maxReceivedMessages) {
    return collectives.exchange(sends, receives, stream);
  }
  const int rank = collectives.rank();
  const int ranks = collectives.ranks();
  requireValidMessages(sends, receives, ranks);
  std::map<Place, Messages> ordered;
  std::vector<int> numbersTo(static_cast<std::size_t>(ranks)), numbersFrom(static_cast<std::size_t>(ranks));
  for (const SentMessage& message : sends) {
    const int number = numbersTo[static_cast<std::size_t>(message.destination)]++;
    ordered[{number, (message.destination - rank + ranks) % ranks}].sent = &message;
  }
  for (const ReceivedMessage& message : receives) {
    const int number = numbersFrom[static_cast<std::size_t>(message.origin)]++;
    ordered[{number, (rank - message.origin + ranks) % ranks}].received = &message;
  }
  exchangeInParts(collectives, ordered, stream);
}

}  // namespace mscclpp::kernels
