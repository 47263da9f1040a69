// Algorithms and their collections on CPU ranks, one rank per thread. The threads share a collection.
#include "mscclpp/algorithm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "every_algorithm.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using collective::AlgorithmCollectionBuilder;

static_assert(static_cast<int>(CommResult::CommSuccess) == 0 &&
              static_cast<int>(CommResult::CommInvalidArgument) == 4 &&
              static_cast<int>(CommResult::CommRemoteError) == 6 && static_cast<int>(CommResult::CommNumResults) == 8);

namespace {

using Extras = std::unordered_map<std::string, std::uintptr_t>;

struct Rank {
  std::shared_ptr<Communicator> communicator;
  Bootstrap& bootstrap;
  int rank;
  int ranks;
};

void onRanks(int ranks, const std::function<void(const Rank&)>& body) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    body({std::make_shared<Communicator>(bootstrap), *bootstrap, bootstrap->getRank(), ranks});
    bootstrap->barrier();
  });
}

/// Collects the lines of the log while it lives.
class LogLines {
 public:
  LogLines() {
    setLogHandler([this](LogLevel, LogSubsystem, const std::string& message) {
      const std::lock_guard lock(mutex_);
      lines_ += message + "\n";
    });
  }
  ~LogLines() { setLogHandler({}); }

  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }
  bool contains(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return lines_.find(part) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string lines_;
};

AlgorithmCollection cpuCollection() {
  AlgorithmCollectionBuilder builder;
  return builder.buildDefaultAlgorithms(DeviceType::CPU);
}

std::shared_ptr<Algorithm> find(const AlgorithmCollection& collection, const std::string& collective,
                                const std::string& name) {
  return collection.getAlgorithmsByCollective(collective).at(name);
}

/// All-reduces ones of `type` FLOAT32 and checks the result.
CommResult sumOnes(Algorithm& algorithm, const Rank& rank, std::size_t count = 100) {
  const std::vector<float> input(count, 1.0f);
  std::vector<float> output(count);
  const CommResult result = algorithm.execute(rank.communicator, input.data(), output.data(), count * 4, count * 4,
                                              DataType::FLOAT32, ReduceOp::SUM, nullptr, nullptr);
  if (result == CommResult::CommSuccess) CHECK(output == std::vector<float>(count, static_cast<float>(rank.ranks)));
  return result;
}

/// Runs calls on buffers of this process through an algorithm, for checkCollective().
std::function<void(CollectiveCall, Bytes&, Bytes*)> performer(Algorithm& algorithm, const Rank& rank) {
  return [&algorithm, &rank](CollectiveCall call, Bytes& from, Bytes* to) {
    const auto inputAt = reinterpret_cast<std::size_t>(call.input);
    const auto outputAt = reinterpret_cast<std::size_t>(call.output);
    if (call.input != nullptr) call.input = from.data() + inputAt;
    if (call.output != nullptr) call.output = (to == nullptr ? from : *to).data() + outputAt;
    CHECK(executeCall(algorithm, rank.communicator, rank.ranks, call) == CommResult::CommSuccess);
  };
}

/// What a user's algorithm of these tests counts.
struct Counts {
  std::atomic<int> inits{0};
  std::atomic<int> contexts{0};
  std::atomic<int> alive{0};
  std::atomic<int> calls{0};
};

/// The context of a user's algorithm: a `Collectives` of its own.
struct UserContext {
  UserContext(Counts& all, std::shared_ptr<Communicator> communicator)
      : counts(all), collectives(std::move(communicator), DeviceType::CPU) {
    ++counts.contexts;
    ++counts.alive;
  }
  ~UserContext() { --counts.alive; }

  Counts& counts;
  Collectives collectives;
};

/// An all-reduce by a user, which adds one to each float. The tag of its contexts is the number of elements.
std::shared_ptr<NativeAlgorithm> plusOne(Counts& counts, std::size_t shortest = 0, std::size_t longest = UINT64_MAX,
                                         CollectiveBufferMode mode = CollectiveBufferMode::Any,
                                         Algorithm::Constraint constraint = {}) {
  return std::make_shared<NativeAlgorithm>(
      "plus_one", "allreduce", [&counts](std::shared_ptr<Communicator>) { ++counts.inits; },
      [&counts](const std::shared_ptr<void> context, const void* input, void* output, std::size_t inputSize,
                std::size_t, DataType dtype, ReduceOp op, CUstream_st* stream, int nBlocks, int nThreads,
                const Extras& extras, DataType) {
        ++counts.calls;
        const auto user = std::static_pointer_cast<UserContext>(context);
        user->collectives.allReduce(input, output, inputSize / 4, dtype, op, stream);
        const auto added = static_cast<float>(1 + nBlocks + nThreads + static_cast<int>(extras.size()));
        for (std::size_t i = 0; i < inputSize / 4; ++i) static_cast<float*>(output)[i] += added;
        return CommResult::CommSuccess;
      },
      [&counts](std::shared_ptr<Communicator> communicator, const void*, void*, std::size_t, std::size_t, DataType) {
        return std::make_shared<UserContext>(counts, std::move(communicator));
      },
      [](const void*, void*, std::size_t inputSize, std::size_t, DataType, bool symmetricMemory) {
        return AlgorithmCtxKey{nullptr, nullptr, inputSize, 0, symmetricMemory ? 1 : 0};
      },
      shortest, longest, mode, std::unordered_map<std::string, std::uint64_t>{{"latency", 1}}, constraint);
}

CommResult call(Algorithm& algorithm, const Rank& rank, std::vector<float>& values, bool symmetricMemory = false) {
  return algorithm.execute(rank.communicator, values.data(), values.data(), values.size() * 4, values.size() * 4,
                           DataType::FLOAT32, ReduceOp::SUM, nullptr, nullptr, 0, 0, symmetricMemory);
}

}  // namespace

TEST_CASE("the names of the library's algorithms") {
  const auto collection = cpuCollection();
  std::set<std::string> names;
  for (const auto& [name, algorithm] : collection.getAlgorithmsByCollective("allreduce")) {
    CHECK(algorithm->name() == name);
    CHECK(algorithm->collective() == "allreduce");
    CHECK(algorithm->type() == AlgorithmType::Native);
    names.insert(name);
  }
  CHECK(names == std::set<std::string>{
                     "mscclpp_allreduce", "mscclpp_allreduce_one_shot_ll16", "mscclpp_allreduce_one_shot_sentinel",
                     "mscclpp_allreduce_two_shot_ll16", "mscclpp_allreduce_two_shot_sentinel",
                     "mscclpp_allreduce_pipelined", "mscclpp_allreduce_direct", "mscclpp_allreduce_copy_engine",
                     "default_allreduce_allpair_packet", "default_allreduce_packet", "default_allreduce_nvls_packet",
                     "default_allreduce_nvls_with_copy", "default_allreduce_nvls_zero_copy",
                     "default_allreduce_nvls_warp_pipeline", "default_allreduce_nvls_block_pipeline",
                     "default_allreduce_fullmesh", "default_allreduce_rsag", "default_allreduce_rsag_pipeline",
                     "default_allreduce_rsag_zero_copy"});
  CHECK(collection.getAlgorithmsByCollective("allgather").count("default_allgather_fullmesh") == 1);
  CHECK(collection.getAlgorithmsByCollective("allgather").count("default_allgather_fullmesh2") == 1);
  CHECK(collection.getAlgorithmsByCollective("sendrecv").count("mscclpp_sendrecv_pipelined") == 1);
  CHECK(collection.getAlgorithmsByCollective("all_reduce").empty());
  std::set<std::string> symmetric;
  for (const auto& algorithm : collection.getAllAlgorithms()) {
    if (needsSymmetricMemory(*algorithm)) symmetric.insert(algorithm->name());
  }
  CHECK(symmetric ==
        std::set<std::string>{"mscclpp_allreduce_direct", "mscclpp_allreduce_copy_engine", "mscclpp_allgather_direct",
                              "mscclpp_allgather_bulk", "mscclpp_allgather_copy_engine", "mscclpp_alltoall_direct",
                              "mscclpp_alltoall_bulk", "mscclpp_alltoall_copy_engine", "mscclpp_broadcast_direct",
                              "mscclpp_broadcast_bulk", "mscclpp_broadcast_copy_engine"});
  CHECK(find(collection, "allgather", "mscclpp_allgather_bulk")->messageRange() ==
        std::pair<std::size_t, std::size_t>(0, SIZE_MAX));
  CHECK(find(collection, "allreduce", "mscclpp_allreduce_one_shot_ll16")->messageRange() ==
        std::pair<std::size_t, std::size_t>(0, 256 << 10));
  CHECK(find(collection, "allreduce", "mscclpp_allreduce")->messageRange().second == SIZE_MAX);
  CHECK(find(collection, "alltoall", "mscclpp_alltoall")->bufferMode() == CollectiveBufferMode::OutOfPlace);
  CHECK(find(collection, "reduce", "mscclpp_reduce")->bufferMode() == CollectiveBufferMode::Any);
  CHECK_THROWS_AS(AlgorithmCollectionBuilder().buildDefaultAlgorithms(DeviceType::Unknown), Error);
}

TEST_CASE("every algorithm of every collective") {
  const auto collection = cpuCollection();
  for (const int ranks : thinned({1, 2, 3, 4}, {1, 3})) {
    CAPTURE(ranks);
    onRanks(ranks, [&](const Rank& rank) {
      const auto collectives = checkEveryAlgorithm(collection, rank.rank, ranks, {1, 37, 5003},
                                                   [&](Algorithm& algorithm) { return performer(algorithm, rank); });
      CHECK(collectives.size() == 9);
      rank.bootstrap.barrier();
    });
    collection.getAllAlgorithms().front()->reset();
  }
}

TEST_CASE("a name of MSCCL++'s takes messages that its own algorithms here do not") {
  const auto collection = cpuCollection();
  onRanks(2, [&](const Rank& rank) {
    for (const auto* name :
         {"default_allreduce_allpair_packet", "default_allreduce_packet", "default_allreduce_nvls_packet"}) {
      CHECK(sumOnes(*find(collection, "allreduce", name), rank, 200'000) == CommResult::CommSuccess);
    }
  });
}

TEST_CASE("the default selection") {
  const auto collection = cpuCollection();
  onRanks(2, [&](const Rank& rank) {
    for (const std::size_t count : {10, 300'000}) {
      const auto algorithm = collection.selectAlgorithm({.worldSize = 2,
                                                         .nRanksPerNode = 2,
                                                         .rank = rank.rank,
                                                         .messageSize = count * 4,
                                                         .collective = "allreduce",
                                                         .dtype = DataType::FLOAT32});
      REQUIRE(algorithm != nullptr);
      CHECK(algorithm->name() == "mscclpp_allreduce");
      CHECK(sumOnes(*algorithm, rank, count) == CommResult::CommSuccess);
    }
  });
  CHECK(collection.selectAlgorithm({.collective = "transpose"}) == nullptr);
}

TEST_CASE("selectors: primary, fallback, none") {
  Counts counts;
  AlgorithmCollection collection;
  CHECK(collection.selectAlgorithm({.collective = "allreduce"}) == nullptr);
  const auto user = plusOne(counts);
  collection.registerAlgorithm("allreduce", "plus_one", user);
  CHECK(collection.selectAlgorithm({.collective = "allreduce"}) == nullptr);
  const auto selectUser = [](const AlgorithmMap& algorithms, const CollectiveRequest& request) {
    const bool isWanted = request.collective == "allreduce" && request.op == ReduceOp::SUM && request.messageSize <= 64;
    return isWanted ? algorithms.at("allreduce").at("plus_one") : nullptr;
  };
  int fallbacks = 0;
  collection.extend(cpuCollection());
  collection.setSelectors(selectUser, [&](const AlgorithmMap& algorithms, const CollectiveRequest& request) {
    ++fallbacks;
    const auto hint = request.hints.find("none");
    return hint != request.hints.end() ? nullptr : algorithms.at("allreduce").at("mscclpp_allreduce");
  });
  CHECK(collection.selectAlgorithm({.messageSize = 64, .collective = "allreduce"}) == user);
  CHECK(fallbacks == 0);
  CHECK(collection.selectAlgorithm({.messageSize = 65, .collective = "allreduce"})->name() == "mscclpp_allreduce");
  CHECK(collection.selectAlgorithm({.messageSize = 8, .collective = "allreduce", .op = ReduceOp::MIN})->name() ==
        "mscclpp_allreduce");
  CHECK(fallbacks == 2);
  CHECK(collection.selectAlgorithm({.messageSize = 65, .collective = "allreduce", .hints = {{"none", {1}}}}) ==
        nullptr);
  // A copy has the same algorithms and selectors, and is independent.
  AlgorithmCollection copy = collection;
  copy.setSelectors({}, selectUser);
  CHECK(copy.selectAlgorithm({.messageSize = 64, .collective = "allreduce"}) == user);
  CHECK(copy.selectAlgorithm({.messageSize = 65, .collective = "allreduce"}) == nullptr);
  CHECK(collection.selectAlgorithm({.messageSize = 65, .collective = "allreduce"}) != nullptr);
  // The last of a name is the one that counts.
  const auto replacement = plusOne(counts);
  AlgorithmCollection more;
  more.registerAlgorithm("allreduce", "plus_one", replacement);
  const std::size_t before = collection.getAllAlgorithms().size();
  collection.extend(more);
  CHECK(collection.getAllAlgorithms().size() == before);
  CHECK(collection.selectAlgorithm({.messageSize = 64, .collective = "allreduce"}) == replacement);
  CHECK_THROWS_WITH_AS(collection.registerAlgorithm("allreduce", "nothing", nullptr), doctest::Contains("nothing"),
                       Error);
}

TEST_CASE("the builder of the process") {
  struct UserBuilder : AlgorithmBuilder {
    explicit UserBuilder(Counts& all) : counts(all) {}
    std::shared_ptr<Algorithm> build() override { return plusOne(counts); }
    Counts& counts;
  };
  struct NullBuilder : AlgorithmBuilder {
    std::shared_ptr<Algorithm> build() override { return nullptr; }
  };
  Counts counts;
  AlgorithmCollectionBuilder::reset();
  const auto builder = AlgorithmCollectionBuilder::getInstance();
  CHECK(builder == AlgorithmCollectionBuilder::getInstance());
  builder->addAlgorithmBuilder(std::make_shared<UserBuilder>(counts));
  builder->setAlgorithmSelector([](const AlgorithmMap& algorithms, const CollectiveRequest& request) {
    const auto& ofCollective = algorithms.at(request.collective);
    const auto found = ofCollective.find("plus_one");
    return found == ofCollective.end() ? nullptr : found->second;
  });
  auto collection = builder->buildDefaultAlgorithms(DeviceType::CPU);
  CHECK(collection.selectAlgorithm({.collective = "allreduce"})->name() == "mscclpp_allreduce");
  collection.extend(builder->build());
  CHECK(collection.selectAlgorithm({.collective = "allreduce"})->name() == "plus_one");
  CHECK(collection.selectAlgorithm({.collective = "allgather"})->name() == "mscclpp_allgather");
  builder->setFallbackAlgorithmSelector(
      [](const AlgorithmMap&, const CollectiveRequest&) { return std::shared_ptr<Algorithm>(); });
  CHECK(builder->buildDefaultAlgorithms(DeviceType::CPU).selectAlgorithm({.collective = "allgather"}) == nullptr);
  CHECK_THROWS_AS(builder->addAlgorithmBuilder(nullptr), Error);
  builder->addAlgorithmBuilder(std::make_shared<NullBuilder>());
  CHECK_THROWS_WITH_AS(builder->build(), doctest::Contains("returned no algorithm"), Error);
  AlgorithmCollectionBuilder::reset();
  CHECK(builder != AlgorithmCollectionBuilder::getInstance());
  CHECK(AlgorithmCollectionBuilder::getInstance()->build().getAllAlgorithms().empty());
}

TEST_CASE("a user's algorithm: contexts are made once per communicator and key, and released") {
  Counts counts;
  const auto algorithm = plusOne(counts);
  CHECK(algorithm->tags().at("latency") == 1);
  for (int round = 1; round <= 2; ++round) {
    onRanks(2, [&](const Rank& rank) {
      for (int i = 0; i < 3; ++i) {
        std::vector<float> values(8, 1.0f);
        CHECK(call(*algorithm, rank, values) == CommResult::CommSuccess);
        CHECK(values == std::vector<float>(8, 3.0f));
      }
      std::vector<float> values(9, 1.0f);
      CHECK(call(*algorithm, rank, values) == CommResult::CommSuccess);
      CHECK(call(*algorithm, rank, values, true) == CommResult::CommSuccess);
      rank.bootstrap.barrier();
    });
    CHECK(counts.inits == 2 * round);
    CHECK(counts.contexts == 6 * round);
    CHECK(counts.calls == 10 * round);
    CHECK(counts.alive == 6);
    algorithm->reset();
    CHECK(counts.alive == 0);
  }
  // What the caller passes arrives: launch and extras.
  onRanks(1, [&](const Rank& rank) {
    const float one = 1;
    float sum = 0;
    CHECK(algorithm->execute(rank.communicator, &one, &sum, 4, 4, DataType::FLOAT32, ReduceOp::SUM, nullptr, nullptr, 2,
                             3, false, {{"key", 0}}) == CommResult::CommSuccess);
    CHECK(sum == 1 + 1 + 2 + 3 + 1);
  });
}

TEST_CASE("contexts of communicators that are gone are released when another one is used") {
  std::weak_ptr<int> first;
  int made = 0;
  NativeAlgorithm algorithm(
      "counted", "allreduce", {}, [](auto&&...) { return CommResult::CommSuccess; },
      [&](auto&&...) {
        auto context = std::make_shared<int>(++made);
        if (made == 1) first = context;
        return context;
      },
      {});
  float value = 1;
  const auto execute = [&](const Rank& rank) {
    CHECK(algorithm.execute(rank.communicator, &value, &value, 4, 4, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                            nullptr) == CommResult::CommSuccess);
  };
  onRanks(1, execute);
  CHECK_FALSE(first.expired());
  onRanks(1, execute);
  CHECK(first.expired());
  CHECK(made == 2);
}

TEST_CASE("the library's contexts are shared by the algorithms of a collection, and released") {
  const auto collection = cpuCollection();
  onRanks(2, [&](const Rank& rank) {
    const auto owners = [&] { return rank.communicator.use_count(); };
    const long before = owners();
    CHECK(sumOnes(*find(collection, "allreduce", "mscclpp_allreduce"), rank) == CommResult::CommSuccess);
    const long selected = owners();
    CHECK(selected > before);
    CHECK(sumOnes(*find(collection, "allreduce", "mscclpp_allreduce_pipelined"), rank) == CommResult::CommSuccess);
    CHECK(sumOnes(*find(collection, "allreduce", "default_allreduce_rsag"), rank) == CommResult::CommSuccess);
    CHECK(owners() == selected);
    CHECK(sumOnes(*find(collection, "allreduce", "default_allreduce_packet"), rank) == CommResult::CommSuccess);
    const long all = owners();
    CHECK(all > selected);
    CHECK(sumOnes(*find(collection, "allreduce", "mscclpp_allreduce_one_shot_ll16"), rank) == CommResult::CommSuccess);
    CHECK(owners() == all);
    rank.bootstrap.barrier();
    if (rank.rank == 0) find(collection, "broadcast", "mscclpp_broadcast")->reset();
    rank.bootstrap.barrier();
    CHECK(owners() == before);
    CHECK(sumOnes(*find(collection, "allreduce", "mscclpp_allreduce"), rank) == CommResult::CommSuccess);
    CHECK(owners() == selected);
  });
}

TEST_CASE("two jobs at once, beside registrations and selections") {
  auto collection = cpuCollection();
  Counts counts;
  std::atomic<bool> isDone{false};
  std::thread registrar([&] {
    for (int i = 0; !isDone; ++i) {
      collection.registerAlgorithm("allreduce", "plus_one_" + std::to_string(i % 8), plusOne(counts));
      collection.setSelectors({}, [](const AlgorithmMap& algorithms, const CollectiveRequest& request) {
        return algorithms.at(request.collective).at("mscclpp_" + request.collective);
      });
      std::this_thread::yield();
    }
  });
  const auto job = [&] {
    onRanks(2, [&](const Rank& rank) {
      for (std::size_t i = 0; i < 100; ++i) {
        const auto algorithm = collection.selectAlgorithm({.collective = "allreduce"});
        CHECK(sumOnes(*algorithm, rank, i % 5 == 0 ? 20'000 : i) == CommResult::CommSuccess);
      }
    });
  };
  std::thread other(job);
  job();
  other.join();
  isDone = true;
  registrar.join();
}

TEST_CASE("functions as earlier versions of MSCCL++ took them") {
  NativeAlgorithm algorithm(
      "earlier", "allreduce", [](std::shared_ptr<Communicator>) {},
      [](const std::shared_ptr<void> context, const void* input, void* output, std::size_t bytes, std::size_t, DataType,
         ReduceOp, CUstream_st*, int, int, const std::unordered_map<std::string, std::uintptr_t>&) {
        std::memcpy(output, input, bytes);
        static_cast<float*>(output)[0] += static_cast<float>(*std::static_pointer_cast<std::size_t>(context));
        return CommResult::CommSuccess;
      },
      [](std::shared_ptr<Communicator>, const void*, void*, std::size_t bytes, std::size_t, DataType) {
        return std::make_shared<std::size_t>(bytes);
      },
      [](const void*, void*, std::size_t bytes, std::size_t, DataType) {
        return AlgorithmCtxKey{nullptr, nullptr, bytes, 0, 0};
      },
      4, 8);
  onRanks(1, [&](const Rank& rank) {
    std::vector<float> one{1}, two{1, 2}, three{1, 2, 3};
    CHECK(call(algorithm, rank, one) == CommResult::CommSuccess);
    CHECK(call(algorithm, rank, two) == CommResult::CommSuccess);
    CHECK(one[0] == 5);
    CHECK(two == std::vector<float>{9, 2});
    CHECK(call(algorithm, rank, three) == CommResult::CommInvalidArgument);
  });
}

TEST_CASE("wrong calls of the library's algorithms") {
  const auto collection = cpuCollection();
  onRanks(2, [&](const Rank& rank) {
    rank.bootstrap.barrier();
    if (rank.rank != 0) return;  // none of the calls waits for another rank
    LogLines log;
    alignas(16) float values[64] = {};
    alignas(16) float output[64] = {};
    struct Wrong {
      const char* message;
      const char* collective;
      std::size_t inputSize;
      std::size_t outputSize;
      DataType dtype = DataType::FLOAT32;
      ReduceOp op = ReduceOp::SUM;
      Extras extras = {};
      DataType accumDtype = DataType::AUTO;
      std::ptrdiff_t outputOffset = 0;
      bool isInPlace = false;
    };
    const std::vector<Wrong> wrongs{
        {"both are the same", "allreduce", 16, 12},
        {"multiples of 4 bytes", "allreduce", 14, 14},
        {"data type auto is not supported", "allreduce", 16, 16, DataType::AUTO},
        {"data type fp8_e4m3b15 is not supported", "allreduce", 16, 16, DataType::FLOAT8_E4M3B15},
        {"operator nop is not supported", "allreduce", 16, 16, DataType::FLOAT32, ReduceOp::NOP},
        {"operator unknown is not supported", "reduce", 16, 16, DataType::FLOAT32, static_cast<ReduceOp>(99)},
        {"accumDtype is double", "allreduce", 16, 16, DataType::FLOAT32, ReduceOp::SUM, {}, DataType::FLOAT64},
        {"accumDtype is half", "allreduce", 16, 16, DataType::INT32, ReduceOp::SUM, {}, DataType::FLOAT16},
        {"count is larger than the address space", "allreduce", SIZE_MAX - 3, SIZE_MAX - 3},
        {"aligned to its elements", "allreduce", 16, 16, DataType::FLOAT32, ReduceOp::SUM, {}, DataType::AUTO, 1},
        {"outputSize is inputSize times", "allgather", 16, 16},
        {"outputSize is inputSize times", "allgather", SIZE_MAX / 2 + 9, 16},
        {"inputSize is outputSize times", "reducescatter", 16, 16},
        {"inputSize is outputSize times", "reducescatter", 17, 8},
        {"multiples of 8 bytes", "alltoall", 12, 12},
        {"does not support calls in place",
         "alltoall",
         16,
         16,
         DataType::FLOAT32,
         ReduceOp::NOP,
         {},
         DataType::AUTO,
         0,
         true},
        {"root is 2, but the ranks are 0 to 1", "broadcast", 0, 16, DataType::FLOAT32, ReduceOp::NOP, {{"root", 2}}},
        {"which is no rank", "reduce", 16, 16, DataType::FLOAT32, ReduceOp::SUM, {{"root", std::size_t{1} << 40}}},
        {"both are the same; inputSize may be 0", "broadcast", 8, 16, DataType::FLOAT32, ReduceOp::NOP, {{"root", 1}}},
        {"both are the same; inputSize may be 0", "broadcast", 0, 16},
        {"both are the same; outputSize may be 0", "reduce", 16, 0},
        {"outputSize is inputSize times the number of ranks; it", "gather", 16, 16},
        {"inputSize is outputSize times the number of ranks; it", "scatter", 0, 16},
        {"destination is 2", "sendrecv", 16, 16, DataType::FLOAT32, ReduceOp::NOP, {{"destination", 2}}},
        {"more than outputSize",
         "sendrecv",
         16,
         16,
         DataType::FLOAT32,
         ReduceOp::NOP,
         {{"origin", 1}, {"receivedSize", 20}}},
        {"multiples of 4 bytes",
         "sendrecv",
         16,
         16,
         DataType::FLOAT32,
         ReduceOp::NOP,
         {{"origin", 1}, {"receivedSize", 7}}},
    };
    for (const Wrong& wrong : wrongs) {
      CAPTURE(wrong.message);
      CAPTURE(wrong.collective);
      log.clear();
      const auto algorithm = find(collection, wrong.collective, std::string("mscclpp_") + wrong.collective);
      void* to = reinterpret_cast<char*>(wrong.isInPlace ? values : output) + wrong.outputOffset;
      CHECK(algorithm->execute(rank.communicator, values, to, wrong.inputSize, wrong.outputSize, wrong.dtype, wrong.op,
                               nullptr, nullptr, 0, 0, false, wrong.extras,
                               wrong.accumDtype) == CommResult::CommInvalidArgument);
      CHECK(log.contains(wrong.message));
    }
    const auto algorithm = find(collection, "allreduce", "mscclpp_allreduce");
    CHECK(algorithm->execute(nullptr, values, output, 16, 16, DataType::FLOAT32, ReduceOp::SUM, nullptr, nullptr) ==
          CommResult::CommInvalidArgument);
    CHECK(log.contains("mscclpp_allreduce: the communicator is null"));
    for (const bool noInput : {false, true}) {
      CHECK(algorithm->execute(rank.communicator, noInput ? nullptr : values, noInput ? output : nullptr, 16, 16,
                               DataType::FLOAT32, ReduceOp::SUM, nullptr, nullptr) == CommResult::CommInvalidArgument);
      CHECK(log.contains(noInput ? "input is null" : "output is null"));
    }
    CHECK(find(collection, "allreduce", "mscclpp_allreduce_one_shot_ll16")
              ->execute(rank.communicator, values, output, 1 << 20, 1 << 20, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                        nullptr) == CommResult::CommInvalidArgument);
    CHECK(log.contains("for messages of 0 to 262144 bytes, not 1048576"));
    // An algorithm that needs symmetric memory, and buffers of which that is not said.
    for (const auto& each : collection.getAllAlgorithms()) {
      if (!needsSymmetricMemory(*each)) continue;
      CAPTURE(each->name());
      log.clear();
      const CollectiveCall call{
          .collective = typeOf(each->collective()), .input = values, .output = output, .count = 4};
      CHECK(executeCall(*each, rank.communicator, rank.ranks, call) == CommResult::CommInvalidArgument);
      CHECK(log.contains("pass symmetricMemory = true"));
    }
    // No elements: done, without a set-up that would wait for rank 1.
    CHECK(algorithm->execute(rank.communicator, nullptr, nullptr, 0, 0, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                             nullptr) == CommResult::CommSuccess);
    const auto transfer = find(collection, "sendrecv", "mscclpp_sendrecv");
    CHECK(transfer->execute(rank.communicator, values, output, 16, 16, DataType::FLOAT32, ReduceOp::NOP, nullptr,
                            nullptr) == CommResult::CommSuccess);
    for (const float value : output) CHECK(value == 0);
  });
}

TEST_CASE("what only the set-up can refuse") {
  const auto collection = cpuCollection();
  const LogLines log;
  onRanks(2, [&](const Rank& rank) {
    std::vector<int> values(100, 1), output(100);
    // Not compiled for this type.
    CHECK(find(collection, "allreduce", "mscclpp_allreduce_two_shot_sentinel")
              ->execute(rank.communicator, values.data(), output.data(), 400, 400, DataType::INT32, ReduceOp::SUM,
                        nullptr, nullptr) == CommResult::CommInvalidArgument);
    CHECK(log.contains("not compiled for data type int32"));
    rank.bootstrap.barrier();
  });
  // A rank that does not come.
  onRanks(2, [&](const Rank& rank) {
    if (rank.rank == 0) {
      rank.communicator->abort();
      CHECK(sumOnes(*find(collection, "allreduce", "mscclpp_allreduce"), rank) == CommResult::CommRemoteError);
    }
  });
}

TEST_CASE("extras: messages of different lengths, and factors") {
  const auto collection = cpuCollection();
  onRanks(2, [&](const Rank& rank) {
    const auto other = static_cast<std::uintptr_t>(1 - rank.rank);
    std::vector<float> sent(rank.rank == 0 ? 7 : 3, static_cast<float>(rank.rank));
    std::vector<float> received(10, -1.0f);
    const std::size_t count = rank.rank == 0 ? 3 : 7;
    CHECK(find(collection, "sendrecv", "mscclpp_sendrecv")
              ->execute(rank.communicator, sent.data(), received.data(), sent.size() * 4, 40, DataType::FLOAT32,
                        ReduceOp::NOP, nullptr, nullptr, 0, 0, false,
                        {{"destination", other}, {"origin", other}, {"receivedSize", count * 4}}) ==
          CommResult::CommSuccess);
    std::vector<float> wanted(10, -1.0f);
    std::fill_n(wanted.begin(), count, static_cast<float>(other));
    CHECK(received == wanted);

    const float factor = rank.rank == 0 ? 0.5f : 2.0f;
    const std::vector<float> ones(5, 1.0f);
    std::vector<float> sums(5);
    CHECK(find(collection, "allreduce", "mscclpp_allreduce")
              ->execute(rank.communicator, ones.data(), sums.data(), 20, 20, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                        nullptr, 0, 0, false, {{"factor", reinterpret_cast<std::uintptr_t>(&factor)}},
                        DataType::FLOAT32) == CommResult::CommSuccess);
    CHECK(sums == std::vector<float>(5, 2.5f));
  });
}

TEST_CASE("wrong calls of a user's algorithm, and its exceptions") {
  onRanks(2, [](const Rank& rank) {
    if (rank.rank != 0) return;
    const LogLines log;
    Counts counts;
    std::vector<float> values(4, 1.0f);
    CHECK(call(*plusOne(counts, 17), rank, values) == CommResult::CommInvalidArgument);
    CHECK(log.contains("for messages of 17 to"));
    CHECK(call(*plusOne(counts, 0, 15), rank, values) == CommResult::CommInvalidArgument);
    CHECK(call(*plusOne(counts, 0, 16, CollectiveBufferMode::OutOfPlace), rank, values) ==
          CommResult::CommInvalidArgument);
    std::vector<float> other(4);
    CHECK(plusOne(counts, 0, 16, CollectiveBufferMode::InPlace)
              ->execute(rank.communicator, values.data(), other.data(), 16, 16, DataType::FLOAT32, ReduceOp::SUM,
                        nullptr, nullptr) == CommResult::CommInvalidArgument);
    CHECK(log.contains("in place only"));
    CHECK(call(*plusOne(counts, 0, 16, CollectiveBufferMode::Any, {.worldSize = 3}), rank, values) ==
          CommResult::CommInvalidUsage);
    CHECK(log.contains("the algorithm is for 3 ranks, but there are 2"));
    CHECK(call(*plusOne(counts, 0, 16, CollectiveBufferMode::Any, {.nRanksPerNode = 3}), rank, values) ==
          CommResult::CommInvalidUsage);
    CHECK(plusOne(counts)->execute(nullptr, nullptr, nullptr, 0, 0, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                                   nullptr) == CommResult::CommInvalidArgument);
    CHECK((counts.inits == 0 && counts.contexts == 0 && counts.calls == 0));

    const auto throwing = [&](const std::function<void()>& what) {
      NativeAlgorithm algorithm("throwing", "mine", {},
                                [&](auto&&...) {
                                  what();
                                  return CommResult::CommInProgress;
                                },
                                {}, {});
      return call(algorithm, rank, values);
    };
    CHECK(throwing([] {}) == CommResult::CommInProgress);
    CHECK(throwing([] { throw Error("wrong", ErrorCode::InvalidUsage); }) == CommResult::CommInvalidArgument);
    CHECK(throwing([] { throw Error("lost", ErrorCode::RemoteError); }) == CommResult::CommRemoteError);
    CHECK(throwing([] { throw Error("late", ErrorCode::Timeout); }) == CommResult::CommRemoteError);
    CHECK(throwing([] { throw CudaError("gpu", 1); }) == CommResult::CommUnhandledCudaError);
    CHECK(throwing([] { throw CuError("gpu", 1); }) == CommResult::CommUnhandledCudaError);
    CHECK(throwing([] { throw SysError("call", 1); }) == CommResult::CommSystemError);
    CHECK(throwing([] { throw std::bad_alloc(); }) == CommResult::CommSystemError);
    CHECK(throwing([] { throw std::runtime_error("a sentence of the user"); }) == CommResult::CommInternalError);
    CHECK(throwing([] { throw 1; }) == CommResult::CommInternalError);
    CHECK(log.contains("algorithm throwing: a sentence of the user"));

    // A context that could not be made is made by the next call; the initialisation is not repeated.
    int inits = 0, attempts = 0;
    NativeAlgorithm retried(
        "retried", "mine", [&](auto&&) { ++inits; }, [](auto&&...) { return CommResult::CommSuccess; },
        [&](auto&&...) -> std::shared_ptr<void> {
          if (++attempts == 1) throw Error("not yet", ErrorCode::SystemError);
          return nullptr;
        },
        {});
    CHECK(call(retried, rank, values) == CommResult::CommSystemError);
    CHECK(call(retried, rank, values) == CommResult::CommSuccess);
    CHECK(call(retried, rank, values) == CommResult::CommSuccess);
    CHECK(inits == 1);
    CHECK(attempts == 2);
  });
  Counts counts;
  CHECK_THROWS_WITH_AS(plusOne(counts, 2, 1), doctest::Contains("longer than the longest"), Error);
  const auto algorithm = plusOne(counts);
  algorithm->setMessageSizeRange(3, 5);
  CHECK(algorithm->messageRange() == std::pair<std::size_t, std::size_t>(3, 5));
  CHECK_THROWS_AS(algorithm->setMessageSizeRange(6, 5), Error);
  CHECK_THROWS_AS(find(cpuCollection(), "reduce", "mscclpp_reduce")->setMessageSizeRange(6, 5), Error);
  CHECK_THROWS_AS(NativeAlgorithm("unnamed", "allreduce", {}, {}, {}, {}), Error);
}

TEST_CASE("requests in place, and keys") {
  char buffer[64];
  const auto modeOf = [&](const char* collective, std::ptrdiff_t input, std::ptrdiff_t output) {
    return CollectiveRequest{.worldSize = 4,
                             .rank = 2,
                             .input = buffer + input,
                             .output = buffer + output,
                             .messageSize = 8,
                             .collective = collective}
        .bufferMode();
  };
  const auto inPlace = CollectiveBufferMode::InPlace;
  const auto outOfPlace = CollectiveBufferMode::OutOfPlace;
  CHECK(modeOf("allreduce", 0, 0) == inPlace);
  CHECK(modeOf("allreduce", 16, 0) == outOfPlace);
  CHECK(modeOf("allgather", 16, 0) == inPlace);
  CHECK(modeOf("allgather", 0, 16) == outOfPlace);
  CHECK(modeOf("gather", 16, 0) == inPlace);
  CHECK(modeOf("reducescatter", 0, 16) == inPlace);
  CHECK(modeOf("reducescatter", 16, 0) == outOfPlace);
  CHECK(modeOf("scatter", 0, 16) == inPlace);
  CHECK(modeOf("mine", 16, 0) == outOfPlace);

  const AlgorithmCtxKey key{buffer, buffer + 1, 2, 3, 4};
  const std::hash<AlgorithmCtxKey> hash;
  for (const AlgorithmCtxKey& other :
       {AlgorithmCtxKey{buffer + 1, buffer + 1, 2, 3, 4}, AlgorithmCtxKey{buffer, buffer, 2, 3, 4},
        AlgorithmCtxKey{buffer, buffer + 1, 3, 3, 4}, AlgorithmCtxKey{buffer, buffer + 1, 2, 2, 4},
        AlgorithmCtxKey{buffer, buffer + 1, 2, 3, 5}}) {
    CHECK_FALSE(other == key);
    CHECK(hash(other) != hash(key));
  }
  CHECK(hash(AlgorithmCtxKey{key}) == hash(key));
}
