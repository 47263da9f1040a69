// Many calls of all compiled collectives on GPUs, in graphs and eagerly; data is generated and checked on the GPUs.
// MSCCLPP_SOAK_CALLS sets the number of mixed calls.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checked_calls.cuh"
#include "gpu_rank.cuh"
#include "mixed_calls.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int soakSeconds = 300;
constexpr int callsPerGraph = 100;
const std::vector<DataType> generatedTypes{DataType::FLOAT32, DataType::UINT8};

/// A graph of mixed calls.
std::unique_ptr<Graph> mixedGraph(CheckedCalls& calls, MixedCalls& mixed, std::size_t longest) {
  return std::make_unique<Graph>(calls.stream(), [&] {
    for (int call = 0; call < callsPerGraph; ++call) calls.enqueue(mixed.next(longest));
    calls.enqueueNextRound();
  });
}

/// Calls of one collective with each of its algorithms: lengths that follow each other, roots and directions.
void enqueueEachAlgorithm(CheckedCalls& calls, const Collectives& collectives, CollectiveType collective, int ranks,
                          std::size_t longest) {
  int number = 0;
  for (const DataType type : generatedTypes) {
    CheckedCall checked;
    checked.call = {.collective = collective,
                    .count = longest,
                    .type = type,
                    .destination = 0,
                    .origin = 0,
                    .receivedCount = longest};
    for (const auto& algorithm : algorithmsFor(collectives, checked.call)) {
      checked.call.algorithm = algorithm;
      for (const std::size_t count : {longest, std::size_t{7}, longest, std::size_t{0}, longest / 2 + 1, longest}) {
        ++number;
        checked.call.count = count;
        checked.call.root = number % ranks;
        checked.hops = number % ranks;
        checked.sender = number % 3 == 0 ? number % ranks : -1;
        checked.shift = static_cast<std::size_t>(number) % 3;
        calls.enqueue(checked);
      }
    }
  }
}

}  // namespace

TEST_CASE("1,000,000 mixed calls of ranks that are randomly late") {
  runOnAllGpus("a rank with mixed calls", -1, soakSeconds);
}
TEST_CASE("a rank with mixed calls" * doctest::skip()) {
  GpuRank rank(soakSeconds);
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  CheckedCalls calls(rank, collectives, 20'000);
  MixedCalls mixed(collectives, rank.ranks, generatedTypes, 11);  // the same on every rank
  std::vector<std::unique_ptr<Graph>> graphs;
  for (int i = 0; i < 10; ++i) graphs.push_back(mixedGraph(calls, mixed, 20'000));
  const std::uint64_t launches = (soakCalls(1'000'000) + callsPerGraph - 1) / callsPerGraph;
  for (std::uint64_t launch = 0; launch < launches; ++launch) {
    graphs[mixed.below(graphs.size())]->launch();
    if (launch % 1000 == 999) REQUIRE(calls.wrongElements() == 0);
  }
  CHECK(calls.wrongElements() == 0);
  rank.report(std::to_string(launches * callsPerGraph) + " mixed calls with random delays, whole outputs");
}

TEST_CASE("each collective alone in a replayed graph, and eager calls between the replays") {
  runOnAllGpus("a rank with a graph for each collective");
}
TEST_CASE("a rank with a graph for each collective" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  constexpr std::size_t longest = 9001;
  CheckedCalls calls(rank, collectives, longest);
  MixedCalls mixed(collectives, rank.ranks, generatedTypes, 12);
  for (const CollectiveType collective : everyCollective) {
    CAPTURE(nameOf(collective));
    const Graph graph(calls.stream(), [&] {
      enqueueEachAlgorithm(calls, collectives, collective, rank.ranks, longest);
      calls.enqueueNextRound();
    });
    for (int replay = 0; replay < 50; ++replay) graph.launch();
    CHECK(calls.wrongElements() == 0);
    // Eager calls of this collective and of others, then a replay, and so on.
    for (int round = 0; round < 20; ++round) {
      for (int call = 0; call < 5; ++call) {
        calls.enqueue(mixed.next(longest));
        calls.enqueue(mixed.next(collective, mixed.below(longest)));
      }
      calls.enqueueNextRound();
      graph.launch();
    }
    CHECK(calls.wrongElements() == 0);
  }
  rank.report("9 collectives, each in a graph of its own that was replayed 70 times");
}

TEST_CASE("a graph of each collective replayed while the epochs pass 2^32") {
  runOnAllGpus("a rank whose epochs wrap");
}
TEST_CASE("a rank whose epochs wrap" * doctest::skip()) {
  GpuRank rank;
  constexpr std::size_t longest = 5000;
  for (const CollectiveType collective : everyCollective) {
    CAPTURE(nameOf(collective));
    // A new object: slots that are set to an epoch hold no older flags.
    Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
    CheckedCalls calls(rank, collectives, longest);
    const Graph graph(calls.stream(), [&] {
      enqueueEachAlgorithm(calls, collectives, collective, rank.ranks, longest);
      calls.enqueueNextRound();
    });
    // Every algorithm has at least 8 calls per replay, so that all wrap in the first replays.
    collectives.setEpoch((std::uint64_t{1} << 32) - 12);
    for (int replay = 0; replay < 30; ++replay) graph.launch();
    CHECK(calls.wrongElements() == 0);
    rank.bootstrap->barrier();
  }
  rank.report("30 replays of a graph of each collective from epoch 2^32 - 12 on");
}

TEST_CASE("mixed calls of two objects on two streams at once") {
  runOnAllGpus("a rank with mixed calls on two streams");
}
TEST_CASE("a rank with mixed calls on two streams" * doctest::skip()) {
  GpuRank rank;
  // Few enough blocks for the kernels of both to be resident at once.
  Collectives first(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  Collectives second(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  REQUIRE(first.isConcurrent());
  REQUIRE(second.isConcurrent());
  constexpr std::size_t longest = 1000;
  CheckedCalls one(rank, first, longest);
  CheckedCalls two(rank, second, longest);
  const auto enqueueRound = [&](CheckedCalls& calls, const Collectives& collectives, unsigned seed) {
    MixedCalls mixed(collectives, rank.ranks, generatedTypes, seed);
    for (int call = 0; call < callsPerGraph; ++call) {
      CheckedCall checked = mixed.next(longest);
      checked.call.algorithm = "";
      calls.enqueue(checked);
    }
    calls.enqueueNextRound();
  };
  // Loading a kernel may wait for running ones, so load all first.
  enqueueRound(one, first, 3);
  CHECK(one.wrongElements() == 0);
  enqueueRound(two, second, 4);
  CHECK(two.wrongElements() == 0);
  const Graph graphOne(one.stream(), [&] { enqueueRound(one, first, 3); });
  const Graph graphTwo(two.stream(), [&] { enqueueRound(two, second, 4); });
  rank.bootstrap->barrier();
  for (int round = 0; round < 200; ++round) {
    // Ranks start the two in different orders.
    const bool isOneFirst = (round + rank.rank) % 2 == 0;
    (isOneFirst ? graphOne : graphTwo).launch();
    (isOneFirst ? graphTwo : graphOne).launch();
  }
  CHECK(one.wrongElements() == 0);
  CHECK(two.wrongElements() == 0);
  rank.report("20,000 mixed calls on each of two streams at once");
}

TEST_CASE("1,000 replays of each reduction give the same bits, whatever the collective and the root") {
  runOnAllGpus("a rank that replays reductions");
}
TEST_CASE("a rank that replays reductions" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  constexpr std::uint64_t replays = 1000;
  const auto ranks = static_cast<std::size_t>(rank.ranks);
  int graphs = 0;
  for (const std::size_t part : {std::size_t{333}, std::size_t{20'000}}) {
    for (const DataType type : {DataType::BFLOAT16, DataType::FLOAT32}) {
      // Without NaN, whose bits may differ; sums of such values depend on their order.
      const std::size_t count = part * ranks;
      const std::size_t bytes = count * sizeOf(type);
      std::mt19937_64 random(static_cast<unsigned>(rank.rank) + 5);
      std::vector<unsigned char> input(bytes);
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(random() % 100'000) / 777.0f - 60.0f;
        const auto word = arch::bitCast<std::uint32_t>(value);
        const std::uint32_t bits = type == DataType::FLOAT32 ? word : word >> 16;
        std::memcpy(&input[i * sizeOf(type)], &bits, sizeOf(type));
      }
      const auto source = copyToGpu(input);
      const auto output = detail::gpuCallocUnique<unsigned char>(bytes);
      std::optional<unsigned long long> first;
      for (const auto collective : {CollectiveType::AllReduce, CollectiveType::ReduceScatter, CollectiveType::Reduce}) {
        const bool isScattered = collective == CollectiveType::ReduceScatter;
        CollectiveCall call{.collective = collective,
                            .input = source.get(),
                            .output = output.get(),
                            .count = isScattered ? part : count,
                            .type = type,
                            .reduction = ReduceOp::SUM,
                            .stream = stream};
        for (const auto& algorithm : algorithmsFor(collectives, call)) {
          for (int root = 0; root < (collective == CollectiveType::Reduce ? rank.ranks : 1); ++root) {
            INFO(nameOf(collective) << " " << algorithm << ", " << count << " " << nameOf(type) << ", root " << root);
            call.algorithm = algorithm;
            call.root = root;
            const bool hasOutput = collective != CollectiveType::Reduce || rank.rank == root;
            const std::size_t offset = isScattered ? part * sizeOf(type) * static_cast<std::size_t>(rank.rank) : 0;
            const std::size_t outputBytes = call.count * sizeOf(type);
            const auto hash = detail::gpuCallocUnique<unsigned long long>();
            const auto hashNow = [&] {
              MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
              collectives.check();
              unsigned long long value = 0;
              gpuMemcpy(&value, hash.get(), 1, cudaMemcpyDeviceToHost);
              return value;
            };
            const Graph graph(stream, [&] {
              collectives.run(call);
              if (hasOutput) addHash<<<32, 256, 0, stream>>>(output.get(), outputBytes, offset, hash.get());
              MSCCLPP_CUDATHROW(cudaGetLastError());
            });
            graph.launch();
            const unsigned long long once = hashNow();
            for (std::uint64_t i = 1; i < replays; ++i) graph.launch();
            CHECK(hashNow() == once * replays);
            ++graphs;
            // The hash of the whole message: that of each rank, of the root, or the sum of those of the parts.
            std::vector<unsigned long long> all(ranks);
            all[static_cast<std::size_t>(rank.rank)] = once;
            rank.bootstrap->allGather(all.data(), sizeof(unsigned long long));
            unsigned long long whole = all[static_cast<std::size_t>(root)];
            for (std::size_t r = 0; isScattered && r < ranks; ++r) whole += r == 0 ? 0 : all[r];
            if (!first) first = whole;
            CHECK(whole == *first);
            if (collective == CollectiveType::AllReduce) CHECK(all == std::vector<unsigned long long>(ranks, whole));
          }
        }
      }
    }
  }
  rank.report(std::to_string(graphs) + " graphs of reductions replayed 1,000 times, hashes of all outputs");
}
