// Random messages between ranks, which each rank divides into calls of its own, and the check of what they deliver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::test {

/// A message of a plan: `bytes` bytes that begin `at` bytes after the beginning of input and output.
struct PlannedMessage {
  int from;
  int to;
  std::size_t bytes;
  std::size_t at;
};

/// Messages in an order in which they could be transferred one at a time, and their division into calls.
class MessagePlan {
 public:
  /// sizes: those of the messages, of which each is drawn with the same probability, and sometimes a shorter one; most:
  /// the most messages of a call.
  MessagePlan(int ranks, int messages, const std::vector<std::size_t>& sizes, std::size_t most, unsigned seed)
      : calls_(static_cast<std::size_t>(ranks)) {
    std::mt19937 random(seed);
    const auto anyRank = [&] { return static_cast<int>(random() % static_cast<unsigned>(ranks)); };
    for (int i = 0; i < messages; ++i) {
      std::size_t bytes = sizes[random() % sizes.size()];
      if (random() % 4 == 0) bytes = random() % (bytes + 1);
      add(anyRank(), anyRank(), bytes, random() % 3);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      auto& own = calls_[static_cast<std::size_t>(rank)];
      std::size_t size = 0;
      for (std::size_t m = 0; m < messages_.size(); ++m) {
        if (messages_[m].from != rank && messages_[m].to != rank) continue;
        if (own.empty() || own.back().size() >= size) {
          own.emplace_back();
          size = 1 + random() % most;
        }
        own.back().push_back(m);
      }
    }
  }
  /// One call in which every rank sends a message to each rank.
  MessagePlan(int ranks, std::size_t bytes) : calls_(static_cast<std::size_t>(ranks), {{}}) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        calls_[static_cast<std::size_t>(from)][0].push_back(messages_.size());
        if (from != to) calls_[static_cast<std::size_t>(to)][0].push_back(messages_.size());
        add(from, to, bytes, 0);
      }
    }
  }

  /// The bytes of the input, and of the output, of each rank.
  std::size_t bytes() const { return bytes_; }
  std::size_t callsOf(int rank) const { return calls_[static_cast<std::size_t>(rank)].size(); }

  Bytes inputOf(int rank) const {
    Bytes input(bytes_);
    for (std::size_t i = 0; i < bytes_; ++i) input[i] = byteAt(rank, i);
    return input;
  }

  /// Makes call `call` of a rank. A call with at most one message in each direction is a sendReceive(), every other
  /// time.
  void perform(Collectives& collectives, int rank, std::size_t call, const void* input, void* output,
               CUstream_st* stream = nullptr) const {
    std::vector<SentMessage> sends;
    std::vector<ReceivedMessage> receives;
    for (const std::size_t m : calls_[static_cast<std::size_t>(rank)][call]) {
      const PlannedMessage& message = messages_[m];
      const auto* from = static_cast<const char*>(input) + message.at;
      if (message.from == rank) sends.push_back({from, message.bytes, message.to});
      if (message.to == rank)
        receives.push_back({static_cast<char*>(output) + message.at, message.bytes, message.from});
    }
    if (sends.size() > 1 || receives.size() > 1 || call % 2 == 0) {
      collectives.exchange(sends, receives, stream);
      return;
    }
    const SentMessage sent = sends.empty() ? SentMessage{nullptr, 0, -1} : sends[0];
    const ReceivedMessage received = receives.empty() ? ReceivedMessage{nullptr, 0, -1} : receives[0];
    collectives.sendReceive(sent.data, sent.bytes, sent.destination, received.data, received.bytes, received.origin,
                            DataType::UINT8, stream);
  }
  void perform(Collectives& collectives, int rank, const void* input, void* output,
               CUstream_st* stream = nullptr) const {
    for (std::size_t call = 0; call < callsOf(rank); ++call) perform(collectives, rank, call, input, output, stream);
  }

  /// What is wrong with the output of a rank, which was all poisonByte before; empty if nothing.
  std::string differenceOf(int rank, const Bytes& output) const {
    Bytes wanted(bytes_, poisonByte);
    for (const PlannedMessage& message : messages_) {
      if (message.to != rank) continue;
      for (std::size_t i = message.at; i < message.at + message.bytes; ++i) wanted[i] = byteAt(message.from, i);
    }
    if (wanted == output) return {};
    for (std::size_t i = 0; i < bytes_; ++i) {
      if (wanted[i] != output[i]) return "byte " + std::to_string(i) + ", of message " + messageAt(i) + ", differs";
    }
    return {};
  }

 private:
  static Bytes::value_type byteAt(int rank, std::size_t i) {
    const auto bits = (static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(rank) * 40'503u) * 2'654'435'761u;
    return static_cast<Bytes::value_type>(bits >> 21);
  }

  /// shift: bytes off alignment.
  void add(int from, int to, std::size_t bytes, std::size_t shift) {
    messages_.push_back({from, to, bytes, bytes_ + shift});
    bytes_ += (shift + bytes + 2 * 64 - 1) / 64 * 64;
  }
  std::string messageAt(std::size_t byte) const {
    std::size_t m = messages_.size();
    while (m > 0 && messages_[m - 1].at > byte) --m;
    if (m == 0) return "none";
    const PlannedMessage& message = messages_[m - 1];
    return std::to_string(m - 1) + " from " + std::to_string(message.from) + " to " + std::to_string(message.to) +
           " of " + std::to_string(message.bytes) + " bytes at " + std::to_string(message.at);
  }

  std::vector<PlannedMessage> messages_;
  std::vector<std::vector<std::vector<std::size_t>>> calls_;  ///< of each rank: the messages of each call
  std::size_t bytes_ = 64;
};

}  // namespace mscclpp::test
