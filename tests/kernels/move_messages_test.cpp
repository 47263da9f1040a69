// Which collectives one exchange performs together, their messages, and what these deliver between CPU ranks.
#include "kernels/move_messages.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

#include "kernels/exchange_call.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/host/trace/trace_file.hpp"
#include "tests/kernels/move_group.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

/// Three ranks use packets for short messages; others a pipeline for all.
struct Environment {
  TemporaryFile file{"tuning.json"};
  Environment() {
    std::ofstream(file.path()) << R"({"format": "mscclpp tuning 1", "tables": [
      {"device": "", "ranks": 3, "collective": "send_receive",
       "choices": [{"maxBytes": 65536, "algorithm": "ll16"}, {"algorithm": "pipelined"}]}]})";
    ::setenv("MSCCLPP_TUNING_FILE", file.path().c_str(), 1);
  }
};
const Environment environment;

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

TEST_CASE("joined moves: the messages of a pair of ranks are one") {
  char data[17] = {};
  char output[33] = {};
  const auto sent = [&](std::size_t bytes, int to) { return SentMessage{data, bytes, to}; };
  const auto received = [&](std::size_t bytes, int from) { return ReceivedMessage{output, bytes, from}; };
  const MessageList list = messageListOf(std::vector{sent(1, 1), sent(16, 0), sent(0, 1), sent(17, 1), sent(5, 1)},
                                         std::vector{received(16, 0), received(33, 2)}, 0, 3);
  const MessageList joined = joinedByPair(list);
  REQUIRE(joined.pairCount == 3);
  CHECK(joined.count == 3);
  for (int p = 0; p < 3; ++p) {
    const auto at = static_cast<std::size_t>(p);
    CHECK(joined.pairs[at].peer == list.pairs[at].peer);
    CHECK(joined.pairs[at].side == list.pairs[at].side);
    CHECK(joined.pairs[at].first == p);
    CHECK(joined.pairs[at].count == 1);
    const int peer = joined.pairs[at].peer;
    CHECK(joined.messages[at].bytes == (peer == 0 ? 16u : peer == 1 ? 16u + 32u + 5u : 33u));
  }
}

TEST_CASE("joined moves: whole outputs of random groups, by packets and by a pipeline") {
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      const int rank = bootstrap->getRank();
      Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
      for (unsigned seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        const std::vector<std::size_t> sizes = seed % 2 == 0 ? std::vector<std::size_t>{0, 1, 15, 16, 17, 1000}
                                                             : std::vector<std::size_t>{7, 9000, 65'536};
        const MoveGroup group(ranks, seed % 3 == 0 ? 40 : 6, sizes, seed);
        const Bytes input = group.input(rank);
        Bytes output = group.output(rank);
        collectives.run(group.calls(rank, input.data(), output.data()));
        CHECK(output == group.expected(rank));
      }
      bootstrap->barrier();
    });
  }
}
