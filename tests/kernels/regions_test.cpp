// The regions of scratch that compiled collectives share, on CPU ranks: mixed calls on regions as they are, and on
// regions that were assigned wrongly, which the same calls must detect.
#include "kernels/regions.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "every_collective.hpp"
#include "kernels/kernel_call.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace mscclpp::kernels;

namespace {

struct Used {
  CollectiveType collective;
  const char* name;
  std::size_t longest;  ///< elements
};

/// The region that a call uses on this rank, given the index of its algorithm.
using RegionOf = std::function<Region(const Regions& regions, std::size_t algorithm, int rank)>;

Region ownRegion(const Regions& regions, std::size_t algorithm, int /*rank*/) {
  return *regions.find(algorithm);
}

/// Has 3 ranks make random calls of these algorithms, from random roots and after random delays, until a result is
/// wrong or a wait fails. Returns the first problem, or an empty string after `calls` calls.
std::string problemOf(const std::vector<Used>& used, const RegionOf& regionOf, int calls,
                      std::chrono::nanoseconds timeout) {
  constexpr int ranks = 3;
  std::vector<std::string> problems(ranks);
  std::atomic<int> first = -1;
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    const int rank = bootstrap->getRank();
    Communicator communicator(bootstrap);
    std::vector<std::size_t> indices;
    std::vector<AlgorithmInUse> setUp;
    for (const Used& each : used) {
      indices.push_back(indexOf(each.collective, each.name));
      setUp.push_back({indices.back(), algorithmTable[indices.back()].maxBytes});
    }
    const Regions regions(communicator, DeviceType::CPU, cpuBackend(), setUp, 1);
    const WaitMonitor monitor(communicator, DeviceType::CPU);
    std::vector<Region> inUse;
    for (const std::size_t index : indices) inUse.push_back(regionOf(regions, index, rank));
    bootstrap->barrier();
    std::mt19937_64 random(4);
    std::mt19937_64 delays(static_cast<unsigned>(rank));
    std::string& problem = problems[static_cast<std::size_t>(rank)];
    for (int i = 0; i < calls && problem.empty(); ++i) {
      const std::size_t which = random() % used.size();
      CheckedCall checked;
      checked.call = {.collective = used[which].collective,
                      .count = random() % 2 == 0 ? used[which].longest : 1 + random() % 50,
                      .type = DataType::FLOAT32,
                      .root = static_cast<int>(random() % ranks)};
      checked.seed = static_cast<unsigned>(random());
      if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 2000));
      problem = performAndCompare(checked, rank, ranks, [&](CollectiveCall call, Bytes& from, Bytes* to) {
        const Region& region = inUse[which];
        const bool reduces = hasReduction(call.collective);
        const auto inputAt = reinterpret_cast<std::size_t>(call.input);
        const auto outputAt = reinterpret_cast<std::size_t>(call.output);
        cpuBackend().find(indices[which], call.type, ranks)(
            {.rank = rank,
             .ranks = ranks,
             .window = region.window.data(),
             .epochs = static_cast<std::uint64_t*>(region.epochs.get()),
             .capacity = region.capacity,
             .pipeline = region.pipeline,
             .wait = BoundedWait(monitor.deviceControl(), static_cast<std::uint64_t>(timeout.count())),
             .input = call.input == nullptr ? nullptr : from.data() + inputAt,
             .output = call.output == nullptr ? nullptr : (to == nullptr ? from : *to).data() + outputAt,
             .outputs = nullptr,
             .count = call.count * (reduces ? 1 : sizeof(float)),
             .reduction = call.reduction,
             .root = call.root,
             .destination = call.destination,
             .origin = call.origin,
             .receivedCount = 0,
             .counts = nullptr,
             .offsets = nullptr,
             .shape = {1, 1},
             .stream = nullptr,
             .trace = {},
             .joined = {}});
      });
      if (monitor.failed()) problem = "a wait failed";
      int none = -1;
      if (!problem.empty()) first.compare_exchange_strong(none, rank);
    }
    bootstrap->barrier();
  });
  return first < 0 ? "" : problems[static_cast<std::size_t>(first)];
}

constexpr Used broadcast{CollectiveType::Broadcast, "ll16", 3000};
constexpr Used allGather{CollectiveType::AllGather, "ll16", 3000};
constexpr Used scatter{CollectiveType::Scatter, "ll16", 500};
constexpr Used reduce{CollectiveType::Reduce, "ll16", 3000};
constexpr Used gather{CollectiveType::Gather, "ll16", 3000};
constexpr Used allReduce{CollectiveType::AllReduce, "one_shot_sentinel", 3000};
constexpr Used longGather{CollectiveType::AllGather, "sentinel", 3000};
constexpr Used longBroadcast{CollectiveType::Broadcast, "pipelined", 30'000};
constexpr Used pipelinedGather{CollectiveType::AllGather, "pipelined", 30'000};

const Region& regionFor(const Regions& regions, const Used& used) {
  return *regions.find(indexOf(used.collective, used.name));
}

}  // namespace

TEST_CASE("regions: collectives of one rule share a region, those of different rules do not") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    std::vector<AlgorithmInUse> all;
    for (std::size_t i = 0; i < algorithmTable.size(); ++i) all.push_back({i, algorithmTable[i].maxBytes});
    const Regions regions(communicator, DeviceType::CPU, cpuBackend(), all, 1);
    CHECK(&regionFor(regions, broadcast) == &regionFor(regions, scatter));
    CHECK(&regionFor(regions, broadcast) == &regionFor(regions, reduce));
    CHECK(&regionFor(regions, broadcast) != &regionFor(regions, allGather));
    CHECK(&regionFor(regions, longBroadcast) != &regionFor(regions, pipelinedGather));
    // Regions do not overlap, and share no epochs.
    for (const AlgorithmInUse& i : all) {
      for (const AlgorithmInUse& j : all) {
        const Region& one = *regions.find(i.algorithm);
        const Region& other = *regions.find(j.algorithm);
        if (&one == &other) continue;
        CHECK((one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset));
        CHECK(one.epochs != other.epochs);
      }
    }
    bootstrap->barrier();
  });
}

TEST_CASE("regions: mixed calls on the regions as they are") {
  const std::vector<Used> used{broadcast, allGather,  scatter,       reduce,         gather,
                               allReduce, longGather, longBroadcast, pipelinedGather};
  CHECK(problemOf(used, ownRegion, 400, std::chrono::seconds(60)) == "");
}

// Most of these have intended data races.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("regions: these calls detect regions that are assigned wrongly") {
  const auto isDetected = [](const std::vector<Used>& used, const RegionOf& regionOf) {
    constexpr int calls = 2000;
    const auto soon = std::chrono::milliseconds(500);
    return !problemOf(used, regionOf, calls, soon).empty();
  };
  SUBCASE("an all-gather, which waits for no credit, on the slots of a broadcast") {
    CHECK(isDetected({broadcast, allGather},
                     [](const Regions& regions, std::size_t, int) { return regionFor(regions, broadcast); }));
  }
  SUBCASE("pipelines of different rules on the same rings") {
    CHECK(isDetected({longBroadcast, pipelinedGather},
                     [](const Regions& regions, std::size_t, int) { return regionFor(regions, longBroadcast); }));
  }
  SUBCASE("slots of another length for one of the collectives of a region") {
    CHECK(isDetected({broadcast, scatter}, [](const Regions& regions, std::size_t algorithm, int) {
      Region region = *regions.find(algorithm);
      if (algorithm == indexOf(scatter.collective, scatter.name)) region.capacity = 2048;
      return region;
    }));
  }
  SUBCASE("epochs of their own for two collectives of a region") {
    CHECK(isDetected({broadcast, reduce}, [](const Regions& regions, std::size_t algorithm, int) {
      Region region = *regions.find(algorithm);
      if (algorithm == indexOf(reduce.collective, reduce.name)) {
        region.epochs = cpuBackend().allocate(epochWords * sizeof(std::uint64_t));
        const std::vector<std::uint64_t> words(epochWords, 1);
        cpuBackend().upload(region.epochs.get(), words.data(), epochWords * sizeof(std::uint64_t));
      }
      return region;
    }));
  }
  SUBCASE("slots without their initial value") {
    CHECK(isDetected({allReduce}, [](const Regions& regions, std::size_t algorithm, int rank) {
      const Region& region = *regions.find(algorithm);
      std::memset(region.window[static_cast<std::size_t>(rank)], 0, region.bytes);
      return region;
    }));
  }
}
#endif
