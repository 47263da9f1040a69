// Which collectives one exchange performs together, and their messages.
#include "kernels/move_messages.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "mscclpp/kernels/collective_call.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;

namespace {

std::vector<CollectiveCall> copies(const CollectiveCall& call, std::size_t count) {
  return std::vector<CollectiveCall>(count, call);
}

}  // namespace

TEST_CASE("joined moves: short ones, as many as an exchange has messages") {
  const CollectiveCall move{.collective = CollectiveType::AllGather, .count = 100};
  CHECK(countOfJoinedMoves({}, 2) == 0);
  CHECK(countOfJoinedMoves(copies(move, 5), 2) == 5);
  CHECK(countOfJoinedMoves(copies(move, 100), 2) == 32);
  CHECK(countOfJoinedMoves(copies(move, 100), 8) == 8);
  CHECK(countOfJoinedMoves(copies(move, 2), 64) == 1);

  const auto joinedWith = [&](const CollectiveCall& other) {
    return countOfJoinedMoves(std::vector{move, move, other, move}, 4);
  };
  for (const auto collective : {CollectiveType::AllGather, CollectiveType::AllToAll, CollectiveType::Broadcast,
                                CollectiveType::Gather, CollectiveType::Scatter}) {
    CHECK(joinedWith({.collective = collective, .count = 64 << 10, .type = DataType::UINT8}) == 4);
  }
  for (const auto collective : {CollectiveType::AllReduce, CollectiveType::ReduceScatter, CollectiveType::Reduce,
                                CollectiveType::SendReceive}) {
    CHECK(joinedWith({.collective = collective, .count = 100}) == 2);
  }
  CHECK(joinedWith({.collective = CollectiveType::AllGather, .count = (64 << 10) + 1, .type = DataType::UINT8}) == 2);
  CHECK(joinedWith({.collective = CollectiveType::AllGather, .count = 100, .algorithm = "ll16"}) == 2);
}

TEST_CASE("joined moves: what a rank sends is what the others receive from it, in the same order") {
  constexpr int ranks = 3;
  std::vector<std::byte> memory(1000);
  std::vector<CollectiveCall> calls;
  for (const auto collective : {CollectiveType::AllGather, CollectiveType::AllToAll, CollectiveType::Broadcast,
                                CollectiveType::Gather, CollectiveType::Scatter}) {
    calls.push_back({.collective = collective,
                     .input = memory.data(),
                     .output = memory.data(),
                     .count = calls.size() + 1,
                     .type = DataType::UINT8,
                     .root = 1});
  }
  std::vector<Messages> messages;
  for (int rank = 0; rank < ranks; ++rank) messages.push_back(messagesOf(calls, rank, ranks));
  CHECK(messages[0].sent.size() == 3 + 3 + 1);
  CHECK(messages[1].sent.size() == 3 + 3 + 3 + 1 + 3);
  CHECK(messages[1].received.size() == 3 + 3 + 1 + 3 + 1);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      std::vector<std::size_t> sent, received;
      for (const SentMessage& each : messages[static_cast<std::size_t>(from)].sent) {
        if (each.destination == to) sent.push_back(each.bytes);
      }
      for (const ReceivedMessage& each : messages[static_cast<std::size_t>(to)].received) {
        if (each.origin == from) received.push_back(each.bytes);
      }
      CHECK(sent == received);
    }
  }
}
