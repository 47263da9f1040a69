// The block slots of a GPU: who gets which share, and that all ranks of an object get the same.
#include "kernels/gpu_budget.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "stream_model.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

using SharePointer = std::unique_ptr<GpuBudget::Share>;

/// Whether launches of a graph that is captured now are ordered with calls of others.
bool isOrdered(StreamModel& streams, const SharePointer& share) {
  static std::uint64_t capture = 0;
  CUstream_st* const stream = StreamModel::stream(100);
  const int nodes = streams.graphNodes;
  streams.beginCapture(++capture, {stream});
  share->begin(stream).end();
  streams.endCapture({stream});
  return streams.graphNodes > nodes;
}

}  // namespace

TEST_CASE("budget: an object of all blocks is chained, and alone it adds nothing to graphs") {
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(130, streams);
  const auto only = GpuBudget::reserve(budget, 128);
  CHECK_FALSE(only->isConcurrent());
  CHECK(only->blocks() == 128);
  CHECK(only->start() == KernelStart::Early);
  CHECK_FALSE(isOrdered(streams, only));
  {
    const auto other = GpuBudget::reserve(budget, 128);
    CHECK_FALSE(other->isConcurrent());
    CHECK(other->blocks() == 128);
    CHECK(isOrdered(streams, only));
    CHECK(isOrdered(streams, other));
    CHECK(only->start() == KernelStart::InOrder);
    CHECK(other->start() == KernelStart::InOrder);
  }
  CHECK_FALSE(isOrdered(streams, only));
  CHECK(only->start() == KernelStart::Early);
}

TEST_CASE("budget: the calls of an object that was alone precede those of one that joins it") {
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(130, streams);
  const auto only = GpuBudget::reserve(budget, 128);
  const auto call = [&](const SharePointer& share, int stream, int number) {
    auto turn = share->begin(StreamModel::stream(stream));
    const auto before = streams.call(StreamModel::stream(stream), number);
    turn.end();
    return before;
  };
  call(only, 1, 1);
  call(only, 1, 2);
  CHECK(streams.waits == 0);
  {
    const auto other = GpuBudget::reserve(budget, 128);
    CHECK(call(other, 2, 3) == StreamModel::Calls{1, 2});
    CHECK(call(only, 1, 4) == StreamModel::Calls{1, 2, 3});
  }
  // Its stream may be destroyed, or capture.
  call(only, 3, 5);
  streams.destroy(StreamModel::stream(3));
  const auto other = GpuBudget::reserve(budget, 128);
  CHECK(call(other, 4, 6) == StreamModel::Calls{1, 2, 3, 4, 5});
  CHECK(streams.errors == 0);
}

TEST_CASE("budget: concurrent objects get up to half of the slots, with room for kernels that start early") {
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(130, streams);
  std::vector<SharePointer> shares;
  shares.push_back(GpuBudget::reserve(budget, 16));
  shares.push_back(GpuBudget::reserve(budget, 16));
  for (const auto& share : shares) {
    CHECK(share->isConcurrent());
    CHECK(share->blocks() == 16);
    CHECK(share->start() == KernelStart::Early);
    CHECK_FALSE(isOrdered(streams, share));
  }
  // 64 of 65 slots are taken.
  shares.push_back(GpuBudget::reserve(budget, 1));
  CHECK_FALSE(shares.back()->isConcurrent());
  CHECK(shares.back()->blocks() == 1);
  shares.pop_back();
  // What is left is for chained objects: as many blocks as there are slots.
  const auto large = GpuBudget::reserve(budget, 128);
  CHECK_FALSE(large->isConcurrent());
  CHECK(large->blocks() == 66);
  CHECK(large->start() == KernelStart::InOrder);
  CHECK_FALSE(isOrdered(streams, large));  // the only one in the chain
  const auto small = GpuBudget::reserve(budget, 20);
  CHECK_FALSE(small->isConcurrent());
  CHECK(small->blocks() == 20);
  CHECK(isOrdered(streams, large));
  // What an object leaves can be taken again, but not what a chained one uses.
  shares.clear();
  CHECK(GpuBudget::reserve(budget, 32)->isConcurrent());
  CHECK_FALSE(GpuBudget::reserve(budget, 33)->isConcurrent());
}

TEST_CASE("budget: concurrent objects fit beside the largest chained one") {
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(130, streams);
  auto largest = GpuBudget::reserve(budget, 120);
  const auto other = GpuBudget::reserve(budget, 100);
  CHECK_FALSE(GpuBudget::reserve(budget, 6)->isConcurrent());
  CHECK(GpuBudget::reserve(budget, 5)->isConcurrent());
  largest.reset();
  CHECK_FALSE(GpuBudget::reserve(budget, 16)->isConcurrent());
  CHECK(GpuBudget::reserve(budget, 15)->isConcurrent());
}

TEST_CASE("budget: whatever is reserved and left in whatever order, the slots suffice") {
  constexpr int slots = 50;
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(slots, streams);
  std::vector<SharePointer> shares;
  unsigned random = 1;
  const auto below = [&](unsigned limit) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int>((random >> 8) % limit);
  };
  int concurrent = 0;
  int shrunk = 0;
  for (int step = 0; step < 5000; ++step) {
    if (below(3) == 0 && !shares.empty()) {
      shares.erase(shares.begin() + below(static_cast<unsigned>(shares.size())));
    } else if (shares.size() < 12) {
      const int blocks = 1 + (below(2) == 0 ? below(6) : below(60));
      shares.push_back(GpuBudget::reserve(budget, blocks));
      concurrent += shares.back()->isConcurrent() ? 1 : 0;
      shrunk += shares.back()->blocks() < blocks ? 1 : 0;
      if (below(4) == 0) shares.back()->chain(1 + below(60));
      if (below(4) == 0) shares[static_cast<std::size_t>(below(static_cast<unsigned>(shares.size())))]->resize(blocks);
    }
    int used = 0;
    int largest = 0;
    for (const auto& share : shares) {
      REQUIRE(share->blocks() > 0);
      if (share->isConcurrent()) {
        used += 2 * share->blocks();
      } else {
        largest = std::max(largest, share->blocks());
      }
    }
    REQUIRE(used + largest <= slots);
  }
  CHECK(concurrent > 100);
  CHECK(shrunk > 100);
}

TEST_CASE("budget: a share that is resized is as one that is made anew, beside the others") {
  StreamModel streams;
  const auto budget = std::make_shared<GpuBudget>(130, streams);
  const auto share = GpuBudget::reserve(budget, 8);
  share->resize(32);
  CHECK(share->isConcurrent());
  CHECK(share->blocks() == 32);
  CHECK_FALSE(GpuBudget::reserve(budget, 1)->isConcurrent());
  share->resize(128);
  CHECK_FALSE(share->isConcurrent());
  CHECK(share->blocks() == 128);
  share->resize(200);
  CHECK(share->blocks() == 130);
  share->resize(8);
  CHECK(share->isConcurrent());
  CHECK(GpuBudget::reserve(budget, 24)->isConcurrent());
  // Calls before and after it are in order, on whichever streams.
  const auto call = [&](int stream, int number) {
    auto turn = share->begin(StreamModel::stream(stream));
    const auto before = streams.call(StreamModel::stream(stream), number);
    turn.end();
    return before;
  };
  call(1, 1);
  share->resize(128);
  CHECK(call(2, 2) == StreamModel::Calls{1});
  CHECK(streams.errors == 0);
}

TEST_CASE("budget: one for each GPU, as long as it is in use") {
  StreamModel streams;
  int made = 0;
  const auto make = [&] {
    ++made;
    return std::make_shared<GpuBudget>(130, streams);
  };
  auto budget = GpuBudget::of(1000, make);
  CHECK(GpuBudget::of(1000, make) == budget);
  CHECK(GpuBudget::of(1001, make) != budget);
  CHECK(made == 2);
  const auto share = GpuBudget::reserve(budget, 128);
  budget.reset();
  static_cast<void>(GpuBudget::of(1000, make));
  CHECK(made == 2);
}

namespace {

struct Granted {
  bool isConcurrent;
  int blocks;
  bool operator==(const Granted&) const = default;
};

/// Reserves shares on ranks whose GPUs have these numbers of slots, one after another. Returns what all ranks got.
std::vector<Granted> reserveOn(const std::vector<int>& slots, const std::vector<int>& blocks) {
  std::vector<std::vector<Granted>> granted(slots.size());
  runAsThreads(static_cast<int>(slots.size()), [&](std::shared_ptr<Bootstrap> bootstrap) {
    const auto rank = static_cast<std::size_t>(bootstrap->getRank());
    StreamModel streams;
    const auto budget = std::make_shared<GpuBudget>(slots[rank], streams);
    std::vector<SharePointer> shares;
    for (const int each : blocks) {
      shares.push_back(reserveOnAllRanks(*bootstrap, budget, each, "Object"));
      granted[rank].push_back({shares.back()->isConcurrent(), shares.back()->blocks()});
    }
  });
  for (const auto& each : granted) CHECK(each == granted[0]);
  return granted[0];
}

}  // namespace

TEST_CASE("budget: all ranks get the share of the smallest GPU") {
  CHECK(reserveOn({130, 130}, {128, 16}) == std::vector<Granted>{{false, 128}, {false, 16}});
  CHECK(reserveOn({130, 100, 130}, {128, 8}) == std::vector<Granted>{{false, 100}, {false, 8}});
  CHECK(reserveOn({130, 130}, {16, 16, 16, 128}) ==
        std::vector<Granted>{{true, 16}, {true, 16}, {false, 16}, {false, 66}});
  // The second fits on the first rank only.
  CHECK(reserveOn({130, 80}, {16, 16, 128}) == std::vector<Granted>{{true, 16}, {false, 16}, {false, 48}});
}

TEST_CASE("budget: ranks may want different numbers of blocks") {
  for (const bool isLarge : {false, true}) {  // on one rank: too large for a concurrent object
    CAPTURE(isLarge);
    runAsThreads(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
      StreamModel streams;
      const auto budget = std::make_shared<GpuBudget>(130, streams);
      const int wanted = isLarge && bootstrap->getRank() == 2 ? 120 : 8 + bootstrap->getRank();
      const auto share = reserveOnAllRanks(*bootstrap, budget, wanted, "Object");
      CHECK(share->isConcurrent() != isLarge);
      CHECK(share->blocks() == (isLarge ? 8 : wanted));
    });
  }
}

TEST_CASE("budget: a share is resized on all ranks") {
  runAsThreads(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    StreamModel streams;
    const auto budget = std::make_shared<GpuBudget>(bootstrap->getRank() == 1 ? 100 : 130, streams);
    const auto share = reserveOnAllRanks(*bootstrap, budget, 16, "Executor");
    CHECK(share->isConcurrent());
    resizeOnAllRanks(*bootstrap, *share, 120, "Executor");
    CHECK_FALSE(share->isConcurrent());
    CHECK(share->blocks() == 100);
  });
}

TEST_CASE("budget: a refused resize of ranks on one GPU leaves them what they had") {
  StreamModel streams;
  const auto shared = std::make_shared<GpuBudget>(132, streams);
  runAsThreads(2, [&](std::shared_ptr<Bootstrap> bootstrap) {
    const auto share = reserveOnAllRanks(*bootstrap, shared, 8, "Executor");
    for (int attempt = 0; attempt < 2; ++attempt) {
      CHECK_THROWS_AS(resizeOnAllRanks(*bootstrap, *share, 60, "Executor"), Error);
      CHECK(share->isConcurrent());
      CHECK(share->blocks() == 8);
    }
    resizeOnAllRanks(*bootstrap, *share, 9, "Executor");
    CHECK(share->isConcurrent());
    CHECK(share->blocks() == 9);
  });
}

TEST_CASE("budget: objects over other ranks count too") {
  std::vector<Granted> granted(2);
  runAsThreads(2, [&](std::shared_ptr<Bootstrap> bootstrap) {
    const auto rank = static_cast<std::size_t>(bootstrap->getRank());
    StreamModel streams;
    const auto budget = std::make_shared<GpuBudget>(130, streams);
    const auto others = rank == 1 ? GpuBudget::reserve(budget, 30) : nullptr;
    const auto share = reserveOnAllRanks(*bootstrap, budget, 16, "Object");
    granted[rank] = {share->isConcurrent(), share->blocks()};
    // A share that another rank has chained takes no concurrent slots here.
    CHECK(GpuBudget::reserve(budget, rank == 0 ? 32 : 2)->isConcurrent());
    bootstrap->barrier();
  });
  CHECK(granted == std::vector<Granted>{{false, 16}, {false, 16}});
}

TEST_CASE("budget: two ranks of a process share a GPU if there is room for the kernels of both") {
  StreamModel streams;
  const auto shared = std::make_shared<GpuBudget>(130, streams);
  const auto own = std::make_shared<GpuBudget>(130, streams);
  runAsThreads(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
    const auto budget = bootstrap->getRank() == 1 ? own : shared;
    CHECK(reserveOnAllRanks(*bootstrap, budget, 16, "Object")->isConcurrent());
    try {
      static_cast<void>(reserveOnAllRanks(*bootstrap, budget, 17, "Object"));
      FAIL_CHECK("no exception was thrown");
    } catch (const Error& error) {
      CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
      CHECK_MESSAGE(
          std::string(error.what()).find("ranks 0 and 2 of one process use the same GPU") != std::string::npos,
          error.what());
    }
    bootstrap->barrier();
  });
  // What was reserved has been given back.
  CHECK(GpuBudget::reserve(shared, 32)->isConcurrent());
}
