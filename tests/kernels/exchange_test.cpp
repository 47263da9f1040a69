// Exchanges on CPU ranks, one rank per thread. MSCCLPP_ALGO selects packets for short messages (meson.build).
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

#include "kernels/message_exchange.hpp"
#include "message_plan.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// Around the longest packet message of 64 KiB and the tiles of a pipeline.
const std::vector<std::size_t> sizes{0, 1, 16, 1000, 4096, 32'768, 65'535, 65'536, 65'537, 150'001};

void onRanks(int ranks, const std::function<void(Collectives&, Bootstrap&)>& body,
             Collectives::Algorithms algorithms = Collectives::Algorithms::Selected) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU, algorithms);
    body(collectives, *bootstrap);
    bootstrap->barrier();
  });
}

void checkPlan(const MessagePlan& plan, Collectives& collectives, int rank) {
  const Bytes input = plan.inputOf(rank);
  Bytes output(plan.bytes(), poisonByte);
  for (std::size_t call = 0; call < plan.callsOf(rank); ++call) {
    if ((call + static_cast<std::size_t>(rank)) % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    plan.perform(collectives, rank, call, input.data(), output.data());
  }
  const std::string difference = plan.differenceOf(rank, output);
  CHECK(difference == "");
}

}  // namespace

TEST_CASE("random messages, which each rank divides into calls at places of its own") {
  REQUIRE(env()->algo == "send_receive:ll16");
  for (const int ranks : thinned({1, 2, 3, 4, 5, 6, 7, 8}, {1, 3, 5})) {
    CAPTURE(ranks);
    std::vector<MessagePlan> plans;
    for (const std::size_t most : {1, 4, 16}) plans.emplace_back(ranks, 40, sizes, most, static_cast<unsigned>(ranks));
    plans.emplace_back(ranks, 60, std::vector<std::size_t>{100}, 24, 1);
    plans.emplace_back(ranks, 20, std::vector<std::size_t>{200'000}, 24, 2);
    onRanks(ranks, [&](Collectives& collectives, Bootstrap& bootstrap) {
      for (const MessagePlan& plan : plans) checkPlan(plan, collectives, bootstrap.getRank());
    });
  }
}

TEST_CASE("messages between all ranks in one call") {
  for (const int ranks : thinned({3, 8}, {3})) {
    CAPTURE(ranks);
    onRanks(ranks, [&](Collectives& collectives, Bootstrap& bootstrap) {
      for (const std::size_t bytes : {16, 1001, 65'536, 150'000}) {
        checkPlan(MessagePlan(ranks, bytes), collectives, bootstrap.getRank());
      }
    });
  }
}

TEST_CASE("as many messages as a call takes, all between the same two ranks") {
  onRanks(2, [](Collectives& collectives, Bootstrap& bootstrap) {
    const int rank = bootstrap.getRank();
    constexpr std::size_t count = maxSentMessages;
    for (const std::size_t bytes : {64, 70'000}) {
      std::vector<Bytes> outputs(count, Bytes(bytes));
      std::vector<Bytes> inputs;
      std::vector<SentMessage> sends;
      std::vector<ReceivedMessage> receives;
      for (std::size_t i = 0; i < count; ++i) {
        inputs.emplace_back(bytes, static_cast<Bytes::value_type>(i * 2 + static_cast<std::size_t>(rank)));
      }
      for (std::size_t i = 0; i < count; ++i) {
        sends.push_back({inputs[i].data(), bytes, 1 - rank});
        receives.push_back({outputs[i].data(), bytes, 1 - rank});
      }
      collectives.exchange(sends, receives);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(outputs[i] == Bytes(bytes, static_cast<Bytes::value_type>(i * 2 + 1 - static_cast<std::size_t>(rank))));
      }
      sends.push_back(sends[0]);
      expectInvalidUsage("65 messages are sent in a call, which takes up to 64",
                         [&] { collectives.exchange(sends, receives); });
      receives.push_back(receives[0]);
      expectInvalidUsage("65 messages are received", [&] { collectives.exchange({}, receives); });
    }
  });
}

TEST_CASE("nothing to transfer, and messages to oneself") {
  onRanks(2, [](Collectives& collectives, Bootstrap& bootstrap) {
    const int rank = bootstrap.getRank();
    collectives.exchange({}, {});
    // Of zero bytes: no peer is needed.
    const std::array sends{SentMessage{nullptr, 0, 1 - rank}, SentMessage{nullptr, 0, rank}};
    const std::array receives{ReceivedMessage{nullptr, 0, rank}};
    collectives.exchange(sends, receives);
    std::array<int, 3> values{1, 2, 3};
    std::array<int, 3> others{};
    const std::array toSelf{SentMessage{&values[0], 4, rank}, SentMessage{&values[1], 8, rank}};
    const std::array fromSelf{ReceivedMessage{&others[2], 4, rank}, ReceivedMessage{&values[1], 8, rank}};
    collectives.exchange(toSelf, fromSelf);
    CHECK(values == std::array{1, 2, 3});
    CHECK(others == std::array{0, 0, 1});
  });
}

TEST_CASE("invalid messages, after which the object is usable") {
  onRanks(2, [](Collectives& collectives, Bootstrap& bootstrap) {
    const int rank = bootstrap.getRank();
    std::array<char, 8> memory{};
    const auto expect = [&](const std::string& part, const SentMessage& sent, const ReceivedMessage& received) {
      expectInvalidUsage("exchange: ", [&] { collectives.exchange({&sent, 1}, {&received, 1}); });
      expectInvalidUsage(part, [&] { collectives.exchange({&sent, 1}, {&received, 1}); });
    };
    const SentMessage sent{memory.data(), 4, 1 - rank};
    const ReceivedMessage received{memory.data() + 4, 4, 1 - rank};
    expect("sent message 0 is to rank 2, but the ranks are 0 to 1", {memory.data(), 4, 2}, received);
    expect("received message 0 is from rank -1", sent, {memory.data(), 4, -1});
    expect("sent message 0 has no data", {nullptr, 4, 1 - rank}, received);
    expect("received message 0 has no data", sent, {nullptr, 4, 1 - rank});
    expect("was its size a negative number?", {memory.data(), static_cast<std::size_t>(-4), 1 - rank}, received);
    expect("messages to oneself", {memory.data(), 4, rank}, received);
    expect("messages to oneself", sent, {memory.data(), 4, rank});
    expect("messages to oneself", {memory.data(), 3, rank}, {memory.data(), 4, rank});
    collectives.check();
    checkPlan(MessagePlan(2, 100), collectives, rank);
  });
}

TEST_CASE("a group of more messages than a call takes, with one of a rank that does not exist") {
  onRanks(2, [](Collectives& collectives, Bootstrap& bootstrap) {
    const int rank = bootstrap.getRank();
    std::array<char, 8> memory{};
    CHECK(collectives.rank() == rank);
    CHECK(collectives.ranks() == 2);
    const std::vector<SentMessage> sends(2 * maxSentMessages, {memory.data(), 4, 1 - rank});
    const std::vector<ReceivedMessage> receives(2 * maxReceivedMessages, {memory.data() + 4, 4, 1 - rank});
    for (const int peer : {2, 99, 50'000'000, -1, -2000}) {
      CAPTURE(peer);
      auto wrongSends = sends;
      wrongSends.back().destination = peer;
      expectInvalidUsage("sent message 127 is to rank " + std::to_string(peer) + ", but the ranks are 0 to 1",
                         [&] { kernels::exchange(collectives, wrongSends, receives, nullptr); });
      auto wrongReceives = receives;
      wrongReceives.front().origin = peer;
      expectInvalidUsage("received message 0 is from rank " + std::to_string(peer),
                         [&] { kernels::exchange(collectives, sends, wrongReceives, nullptr); });
    }
    kernels::exchange(collectives, sends, receives, nullptr);
    collectives.check();
  });
}

TEST_CASE("epochs beyond 2^32") {
  onRanks(3, [](Collectives& collectives, Bootstrap& bootstrap) {
    collectives.setEpoch((std::uint64_t{1} << 32) - 7);
    for (unsigned seed = 0; seed < 4; ++seed) {
      checkPlan(MessagePlan(3, 50, {10, 5000, 70'000}, 9, seed), collectives, bootstrap.getRank());
    }
  });
}

namespace {

/// Counts for each of `ranks` ranks, of which some are 0, and offsets with gaps between the parts.
struct Parts {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
  std::size_t elements = 0;  ///< of an array with all parts

  void add(std::size_t count, std::size_t gap) {
    counts.push_back(count);
    offsets.push_back(elements + gap);
    elements += gap + count;
  }
};

std::size_t countOf(int from, int to, std::size_t scale) {
  return static_cast<std::size_t>((from * 5 + to * 3) % 4) * scale + static_cast<std::size_t>((from + to) % 3);
}
float elementOf(int from, int to, std::size_t i) {
  return static_cast<float>(from * 64 + to * 8 + static_cast<int>(i % 7));
}

}  // namespace

TEST_CASE("all-to-all with a count for each pair of ranks") {
  for (const int ranks : thinned({1, 2, 5}, {1, 5})) {
    CAPTURE(ranks);
    onRanks(ranks, [&](Collectives& collectives, Bootstrap& bootstrap) {
      const int rank = bootstrap.getRank();
      for (const std::size_t scale : {3, 1000, 30'000}) {
        Parts sent, received;
        for (int peer = 0; peer < ranks; ++peer) {
          sent.add(countOf(rank, peer, scale), 2);
          received.add(countOf(peer, rank, scale), 1);
        }
        std::vector<float> input(sent.elements), output(received.elements + 1, -1), wanted(output);
        for (int peer = 0; peer < ranks; ++peer) {
          const auto p = static_cast<std::size_t>(peer);
          for (std::size_t i = 0; i < sent.counts[p]; ++i) input[sent.offsets[p] + i] = elementOf(rank, peer, i);
          for (std::size_t i = 0; i < received.counts[p]; ++i)
            wanted[received.offsets[p] + i] = elementOf(peer, rank, i);
        }
        collectives.allToAllV(input.data(), sent.counts, sent.offsets, output.data(), received.counts, received.offsets,
                              DataType::FLOAT32);
        CHECK(output == wanted);
      }
    });
  }
}

TEST_CASE("all-gather and reduce-scatter with a count for each rank") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    onRanks(
        ranks,
        [&](Collectives& collectives, Bootstrap& bootstrap) {
          const int rank = bootstrap.getRank();
          const auto self = static_cast<std::size_t>(rank);
          for (const std::size_t scale : {3, 1000, 30'000}) {
            for (const bool inPlace : {false, true}) {
              Parts parts;
              for (int r = 0; r < ranks; ++r) parts.add(countOf(r, r, scale), 2);
              const std::size_t own = parts.counts[self];
              std::vector<float> gathered(parts.elements + 1, -1), wanted(gathered), input(own),
                  scattered(parts.elements);
              for (int r = 0; r < ranks; ++r) {
                const auto at = static_cast<std::size_t>(r);
                for (std::size_t i = 0; i < parts.counts[at]; ++i) {
                  wanted[parts.offsets[at] + i] = elementOf(r, 0, i);
                  scattered[parts.offsets[at] + i] = elementOf(rank, r, i);
                }
              }
              for (std::size_t i = 0; i < own; ++i) input[i] = elementOf(rank, 0, i);
              float* const place = gathered.data() + parts.offsets[self];
              if (inPlace) std::copy(input.begin(), input.end(), place);
              collectives.allGatherV(inPlace ? place : input.data(), gathered.data(), parts.counts, parts.offsets,
                                     DataType::FLOAT32);
              CHECK(gathered == wanted);

              for (const std::string algorithm : {"", "ll16", "pipelined"}) {
                if (algorithm == "ll16" && scale > 10'000) continue;
                std::vector<float> sum(own, -1), total(own, 0), from(scattered);
                for (int r = 0; r < ranks; ++r) {
                  for (std::size_t i = 0; i < own; ++i) total[i] += elementOf(r, rank, i);
                }
                float* const result = inPlace ? from.data() + parts.offsets[self] : sum.data();
                collectives.reduceScatterV(from.data(), result, parts.counts, parts.offsets, DataType::FLOAT32,
                                           ReduceOp::SUM, nullptr, algorithm);
                CHECK(std::vector<float>(result, result + own) == total);
              }
            }
          }
        },
        Collectives::Algorithms::All);
  }
}

TEST_CASE("data that is received where other data is sent from is refused") {
  onRanks(2, [](Collectives& collectives, Bootstrap& bootstrap) {
    const int rank = bootstrap.getRank();
    const auto self = static_cast<std::size_t>(rank);
    std::array<float, 8> values{};
    const std::vector<std::size_t> two{2, 2}, places{0, 2}, apart{0, 4};
    const std::string gathered = "all_gather_v: input and output overlap";
    const auto type = DataType::FLOAT32;
    const auto allToAll = [&](float* output, const std::vector<std::size_t>& offsets) {
      collectives.allToAllV(values.data(), two, offsets, output, two, offsets, type);
    };
    const auto allGather = [&](float* input, const std::vector<std::size_t>& offsets) {
      collectives.allGatherV(input, values.data(), two, offsets, type);
    };
    for (const std::size_t distance : {0, 1, 3}) {
      expectInvalidUsage("all_to_all_v: input and output overlap: the part from rank",
                         [&] { allToAll(values.data() + distance, places); });
    }
    expectInvalidUsage(gathered, [&] { allGather(values.data() + places[1 - self], places); });
    expectInvalidUsage(gathered, [&] { allGather(values.data() + places[self] + 1, places); });
    // Parts between those of the other array, and those of the rank itself in place.
    values = {1, 1, 0, 0, 2, 2, 0, 0};
    allToAll(values.data() + 2, apart);
    const auto own = static_cast<float>(rank + 1);
    CHECK(values == std::array<float, 8>{1, 1, own, own, 2, 2, own, own});
    allGather(values.data() + apart[self], apart);
    CHECK(values == std::array<float, 8>{1, 1, own, own, 2, 2, own, own});
  });
}

TEST_CASE("an output or input that is null, with an offset") {
  onRanks(2, [](Collectives& collectives, Bootstrap&) {
    std::array<float, 8> values{};
    const std::vector<std::size_t> one{1, 1}, none{0, 0}, offsets{1, 4};
    const auto type = DataType::FLOAT32;
    expectInvalidUsage("all_gather_v: output is null and counts are not 0",
                       [&] { collectives.allGatherV(values.data(), nullptr, one, offsets, type); });
    expectInvalidUsage("all_gather_v: input is null and counts are not 0",
                       [&] { collectives.allGatherV(nullptr, values.data(), one, offsets, type); });
    expectInvalidUsage("all_to_all_v: output is null and counts are not 0",
                       [&] { collectives.allToAllV(values.data(), one, offsets, nullptr, one, offsets, type); });
    expectInvalidUsage("all_to_all_v: input is null and counts are not 0",
                       [&] { collectives.allToAllV(nullptr, one, offsets, values.data(), one, offsets, type); });
    collectives.allGatherV(nullptr, nullptr, none, offsets, type);
    collectives.allToAllV(nullptr, none, offsets, nullptr, none, offsets, type);
  });
}

TEST_CASE("invalid counts") {
  onRanks(2, [](Collectives& collectives, Bootstrap&) {
    float values[8] = {};
    const std::vector<std::size_t> two{1, 1}, offsets{0, 4}, three{1, 1, 1}, negative{1, static_cast<std::size_t>(-1)};
    for (const auto& counts : {three, negative}) {
      const std::string part = counts.size() == 3 ? "one of each for each of 2 ranks" : "a negative number?";
      expectInvalidUsage(part, [&] { collectives.allGatherV(values, values + 4, counts, offsets, DataType::FLOAT32); });
      expectInvalidUsage(
          part, [&] { collectives.allToAllV(values, two, offsets, values + 4, counts, offsets, DataType::FLOAT32); });
      expectInvalidUsage(
          part, [&] { collectives.allToAllV(values, counts, offsets, values + 4, two, offsets, DataType::FLOAT32); });
      expectInvalidUsage(part, [&] {
        collectives.reduceScatterV(values, values + 4, counts, offsets, DataType::FLOAT32, ReduceOp::SUM);
      });
    }
    expectInvalidUsage("not supported",
                       [&] { collectives.allGatherV(values, values + 4, two, offsets, DataType::AUTO); });
    expectInvalidUsage("in place, output == input + offsets[rank]", [&] {
      collectives.reduceScatterV(values, values + 1, std::vector<std::size_t>{2, 2}, std::vector<std::size_t>{0, 0},
                                 DataType::FLOAT32, ReduceOp::SUM);
    });
  });
}
