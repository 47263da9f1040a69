// The compiled collectives on CPU ranks, one rank per thread.
#include "mscclpp/kernels/collectives.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "element_types.hpp"
#include "every_collective.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/host/trace/trace_file.hpp"
#include "tests/kernels/invalid_usage.hpp"

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

/// One call with random input, `shift` elements off alignment; checks every byte and compares the ranks.
void checkCall(const Rank& rank, DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
               const std::string& algorithm, Output where, std::size_t shift = 0) {
  const Bytes& input = inputs[static_cast<std::size_t>(rank.rank)];
  const std::size_t margin = 32;
  const std::size_t start = margin + shift * sizeOf(type);
  Bytes from(start + input.size() + margin, poisonByte);
  Bytes to(from.size(), poisonByte);
  std::copy(input.begin(), input.end(), from.begin() + static_cast<std::ptrdiff_t>(start));
  Bytes& target = where == Output::InPlace ? from : to;
  rank.collectives.allReduce(from.data() + start, target.data() + start, input.size() / sizeOf(type), type, op, nullptr,
                             algorithm);
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(start);
  const auto end = begin + static_cast<std::ptrdiff_t>(input.size());
  const Bytes output(begin, end);
  const std::string difference = describeDifference(type, op, inputs, output);
  CHECK(difference == "");
  CHECK(std::count(target.begin(), begin, poisonByte) == begin - target.begin());
  CHECK(std::count(end, target.end(), poisonByte) == target.end() - end);
  CHECK(sameOnAllRanks(rank.bootstrap, hashOf(output)));
}

std::vector<std::string> algorithmsFor(const Rank& rank, std::size_t count, DataType type, ReduceOp op) {
  return test::algorithmsFor(rank.collectives, allReduceOf(count, type, op));
}

/// Runs a call on buffers of this process, for checkCollective().
auto performer(Collectives& collectives) {
  return [&collectives](CollectiveCall call, Bytes& from, Bytes* to) {
    const auto inputAt = reinterpret_cast<std::size_t>(call.input);
    const auto outputAt = reinterpret_cast<std::size_t>(call.output);
    if (call.input != nullptr) call.input = from.data() + inputAt;
    if (call.output != nullptr) call.output = (to == nullptr ? from : *to).data() + outputAt;
    collectives.run(call);
  };
}

}  // namespace

TEST_CASE("every element type with every operator and every algorithm") {
  onRanks(3, [](const Rank& rank) {
    for (const DataType type : combinedTypes) {
      for (const std::size_t count : thinned<std::size_t>({1, 37, 4099}, {1, 4099})) {
        const auto inputs = inputBytes(type, count, rank.ranks, static_cast<unsigned>(count));
        for (const ReduceOp op : combinedOperators) {
          for (const auto& algorithm : algorithmsFor(rank, count, type, op)) {
            INFO("type " << static_cast<int>(type) << ", operator " << static_cast<int>(op) << ", " << algorithm);
            checkCall(rank, type, op, inputs, algorithm, Output::OtherBuffer);
          }
        }
      }
    }
  });
}

void checkLengths(const Rank& rank) {
  unsigned seed = 0;
  for (const std::size_t count : thinned<std::size_t>({1, 3, 1000, 16384, 40001}, {3, 40001})) {
    for (const DataType type : thinned<DataType>({DataType::FLOAT32, DataType::BFLOAT16}, {DataType::FLOAT32})) {
      const auto inputs = inputBytes(type, count, rank.ranks, ++seed);
      for (const auto& algorithm : algorithmsFor(rank, count, type, ReduceOp::SUM)) {
        CAPTURE(algorithm);
        checkCall(rank, type, ReduceOp::SUM, inputs, algorithm, seed % 2 == 0 ? Output::InPlace : Output::OtherBuffer,
                  seed % 3);
      }
    }
  }
}

TEST_CASE("team sizes, lengths, alignment, in place") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    onRanks(ranks, checkLengths);
  }
  // Without all algorithms, whose scratch would need too much memory.
  for (const int ranks : {5, 8}) {
    CAPTURE(ranks);
    onRanks(ranks, checkLengths, Collectives::Algorithms::Selected);
  }
}

TEST_CASE("64 ranks, and one more than a team has") {
  rlimit descriptors{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  descriptors.rlim_cur = descriptors.rlim_max;  // each rank has a socket to each other rank
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const auto call = [](const Rank& rank) {
    for (const std::size_t count : {1, 3000}) {
      const auto inputs = inputBytes(DataType::FLOAT32, count, rank.ranks, 6);
      checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "", Output::OtherBuffer);
    }
  };
  onRanks(64, call, Collectives::Algorithms::Selected);
  runAsThreads(65, [](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    expectInvalidUsage("at most 64 ranks, the communicator has 65",
                       [&] { Collectives(communicator, DeviceType::CPU); });
  });
}

TEST_CASE("recorded calls give the same results") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const Rank& rank) {
      const auto trace = rank.collectives.makeTrace({.blocks = 1, .eventsPerRecorder = 64});
      rank.collectives.record(trace);
      // Teams of 2 have specialised variants.
      const DataType traced = rank.ranks == 2 ? DataType::FLOAT32 : DataType::BFLOAT16;
      for (const std::size_t elements : {3, 40'001}) {
        for (const auto& algorithm : algorithmsFor(rank, elements, traced, ReduceOp::SUM)) {
          CAPTURE(algorithm);
          checkCall(rank, traced, ReduceOp::SUM, inputBytes(traced, elements, rank.ranks, 3), algorithm,
                    Output::OtherBuffer, 1);
        }
      }
      trace->collect();
      CHECK(trace->lost() > 0);  // so many calls
      // A type without traced variants: the call is recorded, its stages are not.
      const auto recorded = [&] { return trace->buffer().cursors[0].count; };
      CHECK(rank.collectives.recordsStages(allReduceOf(1, DataType::FLOAT32, ReduceOp::SUM)));
      CHECK(rank.collectives.recordsStages(allReduceOf(1, DataType::BFLOAT16, ReduceOp::SUM)));
      CHECK(rank.collectives.recordsStages(allReduceOf(1, DataType::FLOAT32, ReduceOp::MAX)));
      CHECK_FALSE(rank.collectives.recordsStages(allReduceOf(1, DataType::INT32, ReduceOp::SUM)));
      checkCall(rank, DataType::INT32, ReduceOp::SUM, inputBytes(DataType::INT32, 100, rank.ranks, 1), "",
                Output::OtherBuffer);
      CHECK(recorded() == 0);
      const auto inputs = inputBytes(DataType::FLOAT32, 100, rank.ranks, 1);
      checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "", Output::OtherBuffer);
      const auto after = recorded();
      CHECK(after > 0);
      rank.collectives.record(nullptr);
      checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "", Output::OtherBuffer);
      CHECK(recorded() == after);
    });
  }
}

TEST_CASE("threads that record into one trace have tracks of their own") {
  onRanks(1, [](const Rank& rank) {
    Collectives other(std::make_shared<Communicator>(std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1})),
                      DeviceType::CPU);
    const auto trace = rank.collectives.makeTrace({.blocks = 1});
    const auto call = [&](Collectives& collectives) {
      collectives.record(trace);
      const float value = 1;
      float sum = 0;
      for (int i = 0; i < 10; ++i) collectives.allReduce(&value, &sum, 1, DataType::FLOAT32, ReduceOp::SUM);
    };
    call(rank.collectives);
    std::thread(call, std::ref(other)).join();
    const TemporaryFile file("calls.json");
    writeTrace(file.path(), {trace.get()});
    std::map<std::string, std::size_t> events;
    for (const auto& [key, track] : tracksOf(file.read())) events[track.name] = track.events.size();
    CHECK(events.at("calls") == 20);
    CHECK(events.at("calls 2") == 20);
  });
}

TEST_CASE("a message of many tiles") {
  onRanks(2, [](const Rank& rank) {
    const auto inputs = inputBytes(DataType::FLOAT32, 400'001, rank.ranks, 5);
    checkCall(rank, DataType::FLOAT32, ReduceOp::AVG, inputs, "", Output::InPlace, 1);
    checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputs, "pipelined", Output::OtherBuffer);
  });
}

TEST_CASE("every collective with every algorithm") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const Rank& rank) {
      const bool isThorough = rank.ranks == 3;
      checkEveryCollective(rank.collectives, rank.rank, rank.ranks,
                           isThorough ? thinned<std::size_t>({1, 4099, 20'000}, {4099}) : std::vector<std::size_t>{37},
                           isThorough ? thinned<DataType>({DataType::FLOAT32, DataType::UINT8}, {DataType::UINT8})
                                      : std::vector{DataType::FLOAT64},
                           performer(rank.collectives));
    });
  }
  onRanks(
      7,
      [](const Rank& rank) {
        checkEveryCollective(rank.collectives, rank.rank, rank.ranks, {5, 30'001}, {DataType::BFLOAT16},
                             performer(rank.collectives));
      },
      Collectives::Algorithms::Selected);
}

TEST_CASE("every collective with registered buffers") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const Rank& rank) {
      constexpr std::size_t bytes = 1 << 20;
      HostBuffer source(bytes);
      HostBuffer target(bytes);
      const auto sourceRegistration = rank.collectives.registerBuffer(source.data(), bytes);
      const auto targetRegistration = rank.collectives.registerBuffer(target.data(), bytes);
      const auto perform = [&](CollectiveCall call, Bytes& from, Bytes* to) {
        const auto inputAt = reinterpret_cast<std::size_t>(call.input);
        const auto outputAt = reinterpret_cast<std::size_t>(call.output);
        auto* const inputs = static_cast<unsigned char*>(source.data());
        auto* const outputs = to == nullptr ? inputs : static_cast<unsigned char*>(target.data());
        REQUIRE(from.size() <= bytes);
        // No rank writes what another one still reads or has stored to.
        rank.bootstrap.barrier();
        std::copy(from.begin(), from.end(), inputs);
        if (to != nullptr) std::copy(to->begin(), to->end(), outputs);
        if (call.input != nullptr) call.input = inputs + inputAt;
        if (call.output != nullptr) call.output = outputs + outputAt;
        rank.bootstrap.barrier();
        rank.collectives.run(call);
        std::copy(inputs, inputs + from.size(), from.begin());
        if (to != nullptr) std::copy(outputs, outputs + to->size(), to->begin());
      };
      const auto lengths = thinned<std::size_t>({999, 20'000}, {20'000});
      const unsigned plain =
          checkEveryCollective(rank.collectives, rank.rank, rank.ranks, lengths, {DataType::FLOAT32}, perform);
      const unsigned all = checkEveryCollective(rank.collectives, rank.rank, rank.ranks, lengths, {DataType::FLOAT32},
                                                perform, target.data());
      CHECK(all > plain);
      rank.bootstrap.barrier();
    });
  }
}

TEST_CASE("algorithms that need registration, without it") {
  onRanks(2, [](const Rank& rank) {
    std::vector<float> input(100), output(200);
    for (const std::string algorithm : {"direct", "bulk", "copy_engine"}) {
      const CollectiveCall call{.collective = CollectiveType::AllGather,
                                .input = input.data(),
                                .output = output.data(),
                                .count = 100,
                                .algorithm = algorithm};
      CHECK_FALSE(rank.collectives.supports(call));
      CHECK(rank.collectives.takesRegisteredOutput(call));
      expectInvalidUsage("registerBuffer() has registered", [&] { rank.collectives.run(call); });
    }
    // Not selected on CPUs, and no algorithm of this collective.
    CHECK_FALSE(rank.collectives.takesRegisteredOutput({.collective = CollectiveType::AllGather, .count = 100}));
    CHECK_FALSE(rank.collectives.takesRegisteredOutput({.collective = CollectiveType::Reduce, .count = 100}));
    {
      HostBuffer buffer(800);
      const auto registration = rank.collectives.registerBuffer(buffer.data(), 800);
      CollectiveCall call{.collective = CollectiveType::AllGather,
                          .input = input.data(),
                          .output = buffer.data(),
                          .count = 100,
                          .algorithm = "direct"};
      CHECK(rank.collectives.supports(call));
      call.ignoresRegistration = true;
      CHECK_FALSE(rank.collectives.supports(call));
      CHECK_FALSE(rank.collectives.takesRegisteredOutput(call));
      expectInvalidUsage("ignoresRegistration", [&] { rank.collectives.run(call); });
      rank.bootstrap.barrier();
    }
    expectInvalidUsage("rank 1", [&] {
      HostBuffer buffer(100);
      (void)rank.collectives.registerBuffer(buffer.data(), rank.rank == 0 ? 50 : 60);
    });
  });
}

TEST_CASE("a factor for each rank, on the host and where the kernel reads it") {
  onRanks(3, [](const Rank& rank) {
    const std::vector<float> factors{0.5f, -2, 0.25f};
    for (const auto collective : {CollectiveType::AllReduce, CollectiveType::ReduceScatter, CollectiveType::Reduce}) {
      for (const auto location : {ScalarLocation::Host, ScalarLocation::Device}) {
        CollectiveCall call{.collective = collective, .count = 1000, .type = DataType::FLOAT32, .root = 1};
        for (const auto& algorithm : test::algorithmsFor(rank.collectives, call)) {
          CAPTURE(algorithm);
          std::vector<float> input(3000);
          for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 16 + 1);
          std::vector<float> output(1000, -1);
          const float factor = factors[static_cast<std::size_t>(rank.rank)];
          call.reduction = Reduction(ReduceOp::SUM, &factor, location);
          call.algorithm = algorithm;
          call.input = input.data();
          call.output = output.data();
          rank.collectives.run(call);
          if (collective == CollectiveType::Reduce && rank.rank != 1) continue;
          const std::size_t first = collective == CollectiveType::ReduceScatter ? 1000 * rank.rank : 0;
          for (std::size_t i = 0; i < output.size(); ++i) REQUIRE(output[i] == input[first + i] * -1.25f);
        }
      }
    }
  });
}

TEST_CASE("messages of different lengths around a ring") {
  onRanks(3, [](const Rank& rank) {
    // Rank 1 sends far more than the others: the algorithms of the two directions differ on ranks 1 and 2.
    for (const std::string algorithm : {"", "pipelined"}) {
      const auto countOf = [](int sender) { return sender == 1 ? std::size_t{300'001} : std::size_t{7}; };
      const int origin = (rank.rank + 2) % 3;
      const std::vector<std::uint16_t> sent(countOf(rank.rank), static_cast<std::uint16_t>(100 + rank.rank));
      std::vector<std::uint16_t> received(countOf(origin));
      for (int call = 0; call < 10; ++call) {
        rank.collectives.sendReceive(sent.data(), sent.size(), (rank.rank + 1) % 3, received.data(), received.size(),
                                     origin, DataType::UINT16, nullptr, algorithm);
      }
      CHECK(static_cast<std::size_t>(std::count(received.begin(), received.end(), 100 + origin)) == received.size());
    }
  });
}

TEST_CASE("a call that only some ranks take part in") {
  onRanks(3, [](const Rank& rank) {
    std::vector<int> values(1000, rank.rank);
    if (rank.rank == 0) {
      rank.collectives.sendReceive(values.data(), 1000, 2, nullptr, 0, -1, DataType::INT32);
    } else if (rank.rank == 2) {
      rank.collectives.sendReceive(nullptr, 0, -1, values.data(), 1000, 0, DataType::INT32);
      CHECK(values == std::vector<int>(1000, 0));
    }
    rank.collectives.broadcast(values.data(), values.data(), 1000, DataType::INT32, 1);
    CHECK(values == std::vector<int>(1000, 1));
  });
}

TEST_CASE("an algorithm that is not set up") {
  onRanks(
      2,
      [](const Rank& rank) {
        float values[8] = {};
        const auto run = [&](const char* algorithm) {
          rank.collectives.run({.collective = CollectiveType::AllReduce,
                                .input = values,
                                .output = values,
                                .count = 8,
                                .algorithm = algorithm});
        };
        expectInvalidUsage(
            "all_reduce: algorithm \"one_shot_ll16\" is not set up; available: copy_engine, pipelined; construct "
            "Collectives with Algorithms::All",
            [&] { run("one_shot_ll16"); });
        run("pipelined");
      },
      Collectives::Algorithms::Selected);
}

TEST_CASE("invalid calls of each collective") {
  onRanks(2, [](const Rank& rank) {
    Collectives& collectives = rank.collectives;
    float values[64] = {};
    const auto expect = [&](const std::string& part, const CollectiveCall& call) {
      expectInvalidUsage(part, [&] { collectives.run(call); });
    };
    for (const auto collective :
         {CollectiveType::Broadcast, CollectiveType::Reduce, CollectiveType::Gather, CollectiveType::Scatter}) {
      for (const int root : {-1, 2}) {
        expect("root is " + std::to_string(root) + ", but the ranks are 0 to 1",
               {.collective = collective, .input = values, .output = values + 32, .count = 4, .root = root});
      }
    }
    const auto transfer = [&](int destination, int origin, std::size_t received) {
      return CollectiveCall{.collective = CollectiveType::SendReceive,
                            .input = values,
                            .output = values + 32,
                            .count = 4,
                            .destination = destination,
                            .origin = origin,
                            .receivedCount = received};
    };
    expect("destination is 2", transfer(2, 0, 4));
    expect("origin is -2", transfer(0, -2, 4));
    expect("a message to oneself", transfer(rank.rank, 1 - rank.rank, 4));
    expect("a message to oneself", transfer(rank.rank, rank.rank, 5));
    expect("input and output overlap; this collective has no form in place",
           {.collective = CollectiveType::AllToAll, .input = values, .output = values, .count = 4});
    expect("input and output overlap; in place, they are the same",
           {.collective = CollectiveType::AllReduce, .input = values, .output = values + 1, .count = 4});
    expect("input and output overlap",
           {.collective = CollectiveType::AllGather, .input = values + 1, .output = values, .count = 4});
    expect("input and output overlap",
           {.collective = CollectiveType::ReduceScatter, .input = values, .output = values + 1, .count = 4});
    expect("aligned to its elements", {.collective = CollectiveType::AllGather,
                                       .input = reinterpret_cast<char*>(values) + 2,
                                       .output = values + 32,
                                       .count = 4});
    expect(
        "all_gather: unknown algorithm \"one_shot_ll16\"; available: ll16, sentinel, direct, bulk, copy_engine, "
        "pipelined",
        {.collective = CollectiveType::AllGather,
         .input = values,
         .output = values + 32,
         .count = 4,
         .algorithm = "one_shot_ll16"});
    expect("output is null", {.collective = CollectiveType::Broadcast, .input = values, .count = 4});
    collectives.check();
  });
}

TEST_CASE("invalid calls of every collective leave the object usable") {
  onRanks(3, [](const Rank& rank) {
    constexpr std::size_t count = 8;
    std::vector<float> memory(128, 1);
    float* const input = memory.data();
    float* const output = memory.data() + 64;
    int rejected = 0;
    for (const CollectiveType collective : everyCollective) {
      CAPTURE(nameOf(collective));
      CheckedCall checked;
      checked.call = {.collective = collective, .count = count, .type = DataType::FLOAT32};
      const auto role = roleOf(checked, rank.rank, rank.ranks);
      CollectiveCall valid = role.call;
      valid.input = role.hasInput ? input : nullptr;
      valid.output = role.hasOutput ? output : nullptr;
      const auto expect = [&](const std::string& part, const std::function<void(CollectiveCall&)>& change) {
        CollectiveCall call = valid;
        change(call);
        expectInvalidUsage(std::string(nameOf(collective)) + ": ", [&] { rank.collectives.run(call); });
        expectInvalidUsage(part, [&] { rank.collectives.run(call); });
        ++rejected;
      };
      for (const std::size_t negative : {static_cast<std::size_t>(-1), static_cast<std::size_t>(-4),
                                         std::size_t{1} << 63, std::numeric_limits<std::size_t>::max() / 4}) {
        expect("was it a negative number?", [&](CollectiveCall& call) { call.count = negative; });
        if (collective == CollectiveType::SendReceive) {
          expect("was it a negative number?", [&](CollectiveCall& call) { call.receivedCount = negative; });
        }
      }
      if (role.hasInput) {
        expect("input is null", [](CollectiveCall& call) { call.input = nullptr; });
        expect("aligned to its elements",
               [&](CollectiveCall& call) { call.input = reinterpret_cast<const char*>(input) + 1; });
      }
      if (role.hasOutput) {
        expect("output is null", [](CollectiveCall& call) { call.output = nullptr; });
        expect("aligned to its elements",
               [&](CollectiveCall& call) { call.output = reinterpret_cast<char*>(output) + 2; });
      }
      if (role.hasInput && role.hasOutput) {
        // Beside any place that a call in place has.
        const std::size_t at = role.inputCount > count ? 2 * count + 1 : 1;
        expect("input and output overlap", [&](CollectiveCall& call) { call.output = input + at; });
      }
      for (const DataType type : {DataType::AUTO, DataType::FLOAT8_E4M3B15, static_cast<DataType>(1000)}) {
        expect("is not supported", [&](CollectiveCall& call) { call.type = type; });
      }
      if (hasReduction(collective)) {
        for (const ReduceOp op : {ReduceOp::NOP, static_cast<ReduceOp>(1000), static_cast<ReduceOp>(-1)}) {
          expect("is not supported", [&](CollectiveCall& call) { call.reduction = op; });
        }
      }
      if (hasRoot(collective)) {
        for (const int root : {-1, 3, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
          expect("root is ", [&](CollectiveCall& call) { call.root = root; });
        }
      }
      if (collective == CollectiveType::SendReceive) {
        for (const int other : {-2, 3, std::numeric_limits<int>::max()}) {
          expect("destination is ", [&](CollectiveCall& call) { call.destination = other; });
          expect("origin is ", [&](CollectiveCall& call) { call.origin = other; });
        }
        expect("a message to oneself", [&](CollectiveCall& call) { call.destination = rank.rank; });
      }
      expect("unknown algorithm \"ring\"; available: ", [](CollectiveCall& call) { call.algorithm = "ring"; });
      const std::string packets = collective == CollectiveType::AllReduce ? "one_shot_ll16" : "ll16";
      expect(packets + " supports messages of up to ", [&](CollectiveCall& call) {
        call.algorithm = packets;
        call.count = call.receivedCount = 100'000;
        call.input = reinterpret_cast<const void*>(std::uintptr_t{1} << 40);  // it is not accessed
        call.output = reinterpret_cast<void*>(std::uintptr_t{1} << 44);
      });
      rank.collectives.check();
      CHECK(memory == std::vector<float>(128, 1));
    }
    expectInvalidUsage("unknown collective",
                       [&] { rank.collectives.run({.collective = static_cast<CollectiveType>(collectiveTypes)}); });
    CHECK(rejected > 100);
    // Ranks need not have made the same invalid calls.
    checkEveryCollective(rank.collectives, rank.rank, rank.ranks, {37}, {DataType::FLOAT32},
                         performer(rank.collectives));
  });
}

TEST_CASE("selection by size") {
  onRanks(
      2,
      [](const Rank& rank) {
        const Collectives& collectives = rank.collectives;
        CHECK(collectives.algorithms() == std::vector<std::string>{"copy_engine", "pipelined"});
        CHECK(collectives.selectedAlgorithm(allReduceOf(1, DataType::FLOAT32, ReduceOp::SUM)) == "pipelined");
        CHECK(collectives.selectedAlgorithm(allReduceOf(std::size_t{1} << 24, DataType::INT64, ReduceOp::MIN)) ==
              "pipelined");
        CHECK(collectives.supports(allReduceOf(std::size_t{1} << 40, DataType::UINT8, ReduceOp::PROD, "pipelined")));
        CHECK_FALSE(collectives.supports(allReduceOf(1, DataType::FLOAT32, ReduceOp::SUM, "two_shot_sentinel")));
        CHECK_FALSE(
            collectives.supports(allReduceOf(std::size_t{1} << 30, DataType::FLOAT32, ReduceOp::SUM, "one_shot_ll16")));
        CHECK_FALSE(collectives.supports(allReduceOf(1, DataType::FLOAT32, ReduceOp::SUM, "nonsense")));
      },
      Collectives::Algorithms::Selected);
}

TEST_CASE("invalid calls are rejected, and later calls succeed") {
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
    expectInvalidUsage("input is null", call(nullptr, values, 4, DataType::FLOAT32, ReduceOp::SUM));
    expectInvalidUsage("output is null", call(values, nullptr, 4, DataType::FLOAT32, ReduceOp::SUM));
    expectInvalidUsage("available: one_shot_ll16, ", call(values, values, 4, DataType::FLOAT32, ReduceOp::SUM, "ring"));
    expectInvalidUsage("not supported", call(values, values, 4, DataType::FLOAT8_E4M3B15, ReduceOp::SUM));
    expectInvalidUsage("not supported", call(values, values, 4, DataType::AUTO, ReduceOp::SUM));
    expectInvalidUsage("not supported", call(values, values, 4, DataType::FLOAT32, ReduceOp::NOP));
    expectInvalidUsage("not compiled", call(values, values, 4, DataType::INT32, ReduceOp::MAX, "two_shot_sentinel"));
    expectInvalidUsage("up to 262144 bytes",
                       call(values, values, 65537, DataType::FLOAT32, ReduceOp::SUM, "one_shot_ll16"));
    expectInvalidUsage("negative",
                       call(values, values, static_cast<std::size_t>(-4), DataType::FLOAT32, ReduceOp::SUM));
    collectives.check();
    checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputBytes(DataType::FLOAT32, 4, 2, 1), "", Output::OtherBuffer);
  });
}

TEST_CASE("no elements: returns at once, whether other ranks call or not") {
  onRanks(2, [](const Rank& rank) {
    if (rank.rank == 0) {
      rank.collectives.allReduce(nullptr, nullptr, 0, DataType::FLOAT32, ReduceOp::SUM);
      for (const auto& name : rank.collectives.algorithms()) {
        rank.collectives.allReduce(nullptr, nullptr, 0, DataType::BFLOAT16, ReduceOp::SUM, nullptr, name);
      }
    }
    checkCall(rank, DataType::INT32, ReduceOp::SUM, inputBytes(DataType::INT32, 5, 2, 1), "", Output::InPlace);
  });
}

TEST_CASE("epochs beyond 2^32") {
  onRanks(2, [](const Rank& rank) {
    rank.collectives.setEpoch((std::uint64_t{1} << 32) - 4);
    for (const auto& algorithm : algorithmsFor(rank, 3000, DataType::FLOAT32, ReduceOp::SUM)) {
      CAPTURE(algorithm);
      for (unsigned call = 0; call < 9; ++call) {
        const std::size_t count = call % 3 == 1 ? 5 : 3000;
        checkCall(rank, DataType::FLOAT32, ReduceOp::SUM, inputBytes(DataType::FLOAT32, count, 2, call), algorithm,
                  call % 2 == 0 ? Output::InPlace : Output::OtherBuffer);
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
    // The threads of rank 1 start in the other order and at other times.
    const auto use = [&](Collectives& collectives, unsigned seed) {
      for (unsigned call = 0; call < 60; ++call) {
        const std::size_t count = call % 4 == 3 ? 20'000 : 100 + call;
        const auto inputs = inputBytes(DataType::INT32, count, 2, seed + call);
        Bytes output(count * 4);
        collectives.allReduce(inputs[static_cast<std::size_t>(rank)].data(), output.data(), count, DataType::INT32,
                              ReduceOp::SUM);
        const auto difference = describeDifference(DataType::INT32, ReduceOp::SUM, inputs, output);
        CHECK(difference == "");
      }
    };
    std::thread other([&] { use(rank == 0 ? first : second, rank == 0 ? 1000 : 2000); });
    use(rank == 0 ? second : first, rank == 0 ? 2000 : 1000);
    other.join();
    bootstrap->barrier();
  });
}
