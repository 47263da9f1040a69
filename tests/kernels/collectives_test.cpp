// The compiled collectives on CPU ranks, one rank a thread.
#include "mscclpp/kernels/collectives.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host/spawned_ranks.hpp"
#include "kernels/element_kinds.hpp"
#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

struct Rank {
  Collectives& collectives;
  Communicator& communicator;
  Bootstrap& bootstrap;
  int rank;
  int ranks;
};

void onRanks(int ranks, const std::function<void(const Rank&)>& body,
             Collectives::Algorithms algorithms = Collectives::Algorithms::All) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    Collectives collectives(communicator, DeviceType::CPU, algorithms);
    body({collectives, *communicator, *bootstrap, bootstrap->getRank(), ranks});
    bootstrap->barrier();
  });
}

/// One call with random input, `shift` elements off alignment, checked in every byte and against the other ranks.
void checkCall(const Rank& rank, DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
               const std::string& algorithm, bool inPlace, std::size_t shift = 0) {
  const Bytes& input = inputs[static_cast<std::size_t>(rank.rank)];
  const std::size_t margin = 32;
  const std::size_t start = margin + shift * sizeOf(type);
  Bytes from(start + input.size() + margin, poisonByte);
  Bytes to(from.size(), poisonByte);
  std::copy(input.begin(), input.end(), from.begin() + static_cast<std::ptrdiff_t>(start));
  Bytes& target = inPlace ? from : to;
  rank.collectives.allReduce(from.data() + start, target.data() + start, input.size() / sizeOf(type), type, op, nullptr,
                             algorithm);
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(start);
  const auto end = begin + static_cast<std::ptrdiff_t>(input.size());
  const Bytes output(begin, end);
  const std::string difference = differenceOf(type, op, inputs, output);
  CHECK(difference == "");
  CHECK(std::count(target.begin(), begin, poisonByte) == begin - target.begin());
  CHECK(std::count(end, target.end(), poisonByte) == target.end() - end);
  CHECK(sameOnAllRanks(rank.bootstrap, hashOf(output)));
}

/// The algorithms that take such a message, and the choice by size.
std::vector<std::string> algorithmsFor(const Rank& rank, std::size_t count, DataType type, ReduceOp op) {
  std::vector<std::string> names{""};
  for (const auto& name : rank.collectives.algorithms()) {
    if (rank.collectives.serves(name, count, type, op)) names.push_back(name);
  }
  return names;
}

void expectRefusal(const std::string& part, const std::function<void()>& call) {
  try {
    call();
    FAIL_CHECK("nothing was thrown where \"" << part << "\" was expected");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

}  // namespace

TEST_CASE("every element type with every operator and every algorithm") {
  onRanks(3, [](const Rank& rank) {
    for (const DataType type : elementTypes) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{4099}}) {
        const auto inputs = inputBytes(type, count, rank.ranks, static_cast<unsigned>(count));
        for (const ReduceOp op : operators) {
          for (const auto& algorithm : algorithmsFor(rank, count, type, op)) {
            INFO("type " << static_cast<int>(type) << ", operator " << static_cast<int>(op) << ", " << algorithm);
            checkCall(rank, type, op, inputs, algorithm, false);
          }
        }
      }
    }
  });
}

void checkLengths(const Rank& rank) {
  unsigned seed = 0;
  for (const std::size_t count : {1, 3, 1000, 16384, 40001}) {
    for (const DataType type : {DataType::FLOAT32, DataType::BFLOAT16}) {
      const auto inputs = inputBytes(type, count, rank.ranks, ++seed);
      for (const auto& algorithm : algorithmsFor(rank, count, type, ReduceOp::SUM)) {
        CAPTURE(algorithm);
        checkCall(rank, type, ReduceOp::SUM, inputs, algorithm, seed % 2 == 0, seed % 3);
      }
    }
  }
}

TEST_CASE("team sizes, lengths, alignment, in place") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    onRanks(ranks, checkLengths);
  }
  // The scratch of every algorithm would be much memory here.
  for (const int ranks : {5, 8}) {
    CAPTURE(ranks);
    onRanks(ranks, checkLengths, Collectives::Algorithms::Chosen);
  }
}

TEST_CASE("calls that are recorded give the same results") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const Rank& rank) {
      const auto trace = rank.collectives.makeTrace({.blocks = 1, .eventsPerRecorder = 64});
      rank.collectives.record(trace);
      // Teams of 2 have variants of their own.
      const DataType traced = rank.ranks == 2 ? DataType::FLOAT32 : DataType::BFLOAT16;
      for (const std::size_t elements : {3, 40'001}) {
        for (const auto& algorithm : algorithmsFor(rank, elements, traced, ReduceOp::SUM)) {
          CAPTURE(algorithm);
          checkCall(rank, traced, ReduceOp::SUM, inputBytes(traced, elements, rank.ranks, 3), algorithm, false, 1);
        }
      }
      trace->collect();
      CHECK(trace->lost() > 0);  // so many calls
      // A type without variants that record: the call has a track, its stages have none.
      const auto recorded = [&] { return trace->buffer().cursors[0].count; };
      CHECK(rank.collectives.recordsStages(DataType::FLOAT32, ReduceOp::SUM));
      CHECK(rank.collectives.recordsStages(DataType::BFLOAT16, ReduceOp::SUM));
      CHECK_FALSE(rank.collectives.recordsStages(DataType::FLOAT32, ReduceOp::MAX));
      CHECK_FALSE(rank.collectives.recordsStages(DataType::INT32, ReduceOp::SUM));
      checkCall(rank, DataType::INT32, ReduceOp::SUM, inputBytes(DataType::INT32, 100, rank.ranks, 1), "", false);
      CHECK(recorded() == 0);
      const auto inputs = inputBytes(DataType::FLOAT32, 100, rank.ranks, 1);
      checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "", false);
      const auto after = recorded();
      CHECK(after > 0);
      rank.collectives.record(nullptr);
      checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "", false);
      CHECK(recorded() == after);
    });
  }
}

TEST_CASE("a message of many tiles") {
  onRanks(2, [](const Rank& rank) {
    const auto inputs = inputBytes(DataType::FLOAT32, 400'001, rank.ranks, 5);
    checkCall(rank, DataType::FLOAT32, ReduceOp::AVG, inputs, "", true, 1);
    checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "pipelined", false);
  });
}

TEST_CASE("the choice by size") {
  onRanks(
      2,
      [](const Rank& rank) {
        const Collectives& collectives = rank.collectives;
        CHECK(collectives.algorithms() == std::vector<std::string>{"pipelined"});
        CHECK(collectives.chosen(1, DataType::FLOAT32, ReduceOp::SUM) == "pipelined");
        CHECK(collectives.chosen(std::size_t{1} << 24, DataType::INT64, ReduceOp::MIN) == "pipelined");
        CHECK(collectives.serves("pipelined", std::size_t{1} << 40, DataType::UINT8, ReduceOp::PROD));
        CHECK_FALSE(collectives.serves("two_shot_sentinel", 1, DataType::FLOAT32, ReduceOp::SUM));
        CHECK_FALSE(collectives.serves("one_shot_ll16", std::size_t{1} << 30, DataType::FLOAT32, ReduceOp::SUM));
        CHECK_FALSE(collectives.serves("nonsense", 1, DataType::FLOAT32, ReduceOp::SUM));
      },
      Collectives::Algorithms::Chosen);
}

TEST_CASE("wrong calls are refused, and the context works on") {
  CHECK_THROWS_WITH_AS(Collectives(nullptr, DeviceType::CPU), doctest::Contains("null"), Error);
  onRanks(2, [](const Rank& rank) {
    Collectives& collectives = rank.collectives;
    float values[4] = {1, 2, 3, 4};
    const auto call = [&](const void* from, void* to, std::size_t count, DataType type, ReduceOp op,
                          const std::string& name = {}) {
      return [&collectives, from, to, count, type, op, name] {
        collectives.allReduce(from, to, count, type, op, nullptr, name);
      };
    };
    expectRefusal("input is null", call(nullptr, values, 4, DataType::FLOAT32, ReduceOp::SUM));
    expectRefusal("output is null", call(values, nullptr, 4, DataType::FLOAT32, ReduceOp::SUM));
    expectRefusal("there are: one_shot_ll8, ", call(values, values, 4, DataType::FLOAT32, ReduceOp::SUM, "ring"));
    expectRefusal("not supported", call(values, values, 4, DataType::FLOAT8_E4M3B15, ReduceOp::SUM));
    expectRefusal("not supported", call(values, values, 4, DataType::AUTO, ReduceOp::SUM));
    expectRefusal("not supported", call(values, values, 4, DataType::FLOAT32, ReduceOp::NOP));
    expectRefusal("not compiled", call(values, values, 4, DataType::FLOAT32, ReduceOp::MAX, "one_shot_ll8"));
    expectRefusal("up to 262144 bytes", call(values, values, 65537, DataType::FLOAT32, ReduceOp::SUM, "one_shot_ll16"));
    expectRefusal("negative", call(values, values, static_cast<std::size_t>(-4), DataType::FLOAT32, ReduceOp::SUM));
    collectives.check();
    checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputBytes(DataType::FLOAT32, 4, 2, 1), "", false);
  });
}

TEST_CASE("no elements: returns at once, whoever else calls") {
  onRanks(2, [](const Rank& rank) {
    if (rank.rank == 0) {
      rank.collectives.allReduce(nullptr, nullptr, 0, DataType::FLOAT32, ReduceOp::SUM);
      for (const auto& name : rank.collectives.algorithms()) {
        rank.collectives.allReduce(nullptr, nullptr, 0, DataType::BFLOAT16, ReduceOp::SUM, nullptr, name);
      }
    }
    checkCall(rank, DataType::INT32, ReduceOp::SUM, inputBytes(DataType::INT32, 5, 2, 1), "", true);
  });
}

TEST_CASE("call numbers beyond 2^32") {
  onRanks(2, [](const Rank& rank) {
    rank.collectives.setEpoch((std::uint64_t{1} << 32) - 4);
    for (const auto& algorithm : algorithmsFor(rank, 3000, DataType::FLOAT32, ReduceOp::SUM)) {
      CAPTURE(algorithm);
      for (unsigned call = 0; call < 9; ++call) {
        const std::size_t count = call % 3 == 1 ? 5 : 3000;
        checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputBytes(DataType::FLOAT32, count, 2, call), algorithm,
                  call % 2 == 0);
      }
    }
  });
}

TEST_CASE("two contexts of one communicator, used by two threads at once") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const int rank = bootstrap->getRank();
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    Collectives first(communicator, DeviceType::CPU);
    Collectives second(communicator, DeviceType::CPU);
    // The threads of rank 1 start in the other order and at another pace.
    const auto use = [&](Collectives& collectives, unsigned seed) {
      for (unsigned call = 0; call < 60; ++call) {
        const std::size_t count = call % 4 == 3 ? 20'000 : 100 + call;
        const auto inputs = inputBytes(DataType::INT32, count, 2, seed + call);
        Bytes output(count * 4);
        collectives.allReduce(inputs[static_cast<std::size_t>(rank)].data(), output.data(), count, DataType::INT32,
                              ReduceOp::SUM);
        const auto difference = differenceOf(DataType::INT32, ReduceOp::SUM, inputs, output);
        CHECK(difference == "");
      }
    };
    std::thread other([&] { use(rank == 0 ? first : second, rank == 0 ? 1000 : 2000); });
    use(rank == 0 ? second : first, rank == 0 ? 2000 : 1000);
    other.join();
    bootstrap->barrier();
  });
}
