// Cases of docs/persistent_kernels.md: many calls of a collective in one launch, with what must lie between them.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <type_traits>
#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

using PersistentElement = std::uint32_t;

/// What lies between two calls.
enum class Between { GridBarrier, BlockBarrier, Nothing };

/// What a launch does.
struct PersistentRun {
  Between between = Between::GridBarrier;
  bool readsPrevious = true;  ///< the source reads what other threads have stored in the call before
  bool hasShortCalls = true;  ///< some calls have no packs for most blocks
  int firstWarp = 0;          ///< the warps from this one make the calls; the others end at once
  int calls = Backend<>::onGpu ? 1000 : 250;

  static constexpr std::size_t capacityPacks = 64;
  static constexpr std::size_t maxCount = capacityPacks * packSize<PersistentElement>;

  /// Elements of a call.
  MSCCLPP_HOST_DEVICE std::size_t countOf(int call) const {
    if (!hasShortCalls || call % 5 == 0) return maxCount;
    return call % 5 == 1 ? 1 : call % 5 == 2 ? maxCount - 3 : call % 5 == 3 ? 5 : maxCount / 2 + 1;
  }
  /// What `rank` contributes to element i. previous: the results of the call before, null in the first call.
  MSCCLPP_HOST_DEVICE PersistentElement contribution(int rank, int call, std::size_t i,
                                                     const PersistentElement* previous) const {
    const auto own = static_cast<PersistentElement>(rank * 1000003 + call * 10007) + static_cast<PersistentElement>(i);
    return readsPrevious && call > 0 ? own + 3 * previous[(i + 21) % countOf(call - 1)] : own;
  }
};

struct PersistentSource {
  PersistentRun run;
  int rank;
  int call;
  const PersistentElement* previous;

  MSCCLPP_HOST_DEVICE Pack<PersistentElement> operator()(std::size_t first, int valid) const {
    Pack<PersistentElement> pack{};
    for (int i = 0; i < valid; ++i)
      pack[i] = run.contribution(rank, call, first + static_cast<std::size_t>(i), previous);
    return pack;
  }
};

template <class Collective>
struct PersistentBody {
  PersistentRun p;
  Window<> scratch, epochs, results, barriers;
  typename Collective::Scratch layout;
  BoundedWait policy;
  int ranks;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void runCalls(int rank, const GridType& grid) const {
    typename Collective::Args args{};
    args.team = decltype(args.team)(rank, ranks);
    for (int r = 0; r < ranks; ++r) args.window.base[r] = scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    args.scratch = layout;
    args.wait = policy;
    auto wait = policy;
    auto* const barrier = reinterpret_cast<GridBarrier*>(barriers.at(rank));
    auto* to = reinterpret_cast<PersistentElement*>(results.at(rank));
    for (int call = 0; call < p.calls; ++call, to += PersistentRun::maxCount) {
      args.count = p.countOf(call);
      Collective::run(grid, args, PersistentSource{p, rank, call, call == 0 ? nullptr : to - PersistentRun::maxCount},
                      ArraySink<PersistentElement>(to));
      if (p.between == Between::GridBarrier && !barrier->sync(grid, wait)) return;
      if (p.between == Between::BlockBarrier) grid.block().sync();
    }
  }
  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (p.firstWarp == 0) {
      runCalls(rank, grid);
    } else {
      const auto span = grid.warps(p.firstWarp, grid.warpCount() - p.firstWarp, BarrierIds{7});
      if (span.isMember()) runCalls(rank, span);
    }
  }
};

/// LL128 needs warps of 16 lanes or more.
constexpr int persistentWidth(AllReduceConfig config) {
  return config.protocol == Protocol::LL128 || config.protocol == Protocol::LL128Ordered ? 16 : 4;
}

/// Whether all results of all calls are right on every rank; a failed wait is an error unless the run must fail.
template <AllReduceConfig config>
bool persistentResultsAreRight(const Shape& shape, const PersistentRun& run, std::uint64_t timeout = waitTimeout) {
  using Collective = AllReduce<PersistentElement, Sum, config>;
  using Scratch = typename Collective::Scratch;
  Backend<persistentWidth(config)> backend;
  const Scratch layout = Collective::scratchFor(
      PersistentRun::maxCount, shape.ranks, {.tilePacks = 8, .blocks = shape.blocks, .slots = 2 * config.lookahead});
  auto scratch = backend.allocate(shape.ranks, layout.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(shape.ranks, epochWords * sizeof(std::uint64_t), 0);
  auto barriers = backend.allocate(shape.ranks, 128, 0);
  const std::size_t elements = static_cast<std::size_t>(run.calls) * PersistentRun::maxCount;
  auto results = backend.allocate(shape.ranks, elements * sizeof(PersistentElement), poisonByte);
  for (int rank = 0; rank < shape.ranks; ++rank)
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));

  const auto record =
      backend.run(shape, PersistentBody<Collective>{run, scratch.window(), epochs.window(), results.window(),
                                                    barriers.window(), layout, backend.wait(timeout), shape.ranks});
  if (record) {
    MESSAGE(describe(*record));
    return false;
  }
  std::vector<PersistentElement> expected(elements, 0x01010101u * poisonByte);
  for (int call = 0; call < run.calls; ++call) {
    PersistentElement* const to = expected.data() + static_cast<std::size_t>(call) * PersistentRun::maxCount;
    const PersistentElement* const previous = call == 0 ? nullptr : to - PersistentRun::maxCount;
    for (std::size_t i = 0; i < run.countOf(call); ++i) {
      to[i] = 0;
      for (int rank = 0; rank < shape.ranks; ++rank) to[i] += run.contribution(rank, call, i, previous);
    }
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (results.template read<PersistentElement>(rank) != expected) return false;
  }
  return true;
}

template <Protocol protocol, Pattern pattern>
inline constexpr AllReduceConfig persistentPackets{protocol, pattern};
inline constexpr AllReduceConfig persistentPipeline{Protocol::Simple, Pattern::TwoShot};
inline constexpr AllReduceConfig serialPipeline{Protocol::Simple, Pattern::TwoShot, 0, 1};

/// Calls f(std::integral_constant<AllReduceConfig, ...>) for every protocol that the backend has.
template <class F>
void forEachPersistentConfig(const F& f) {
  f(std::integral_constant<AllReduceConfig, persistentPackets<Protocol::LL8, Pattern::OneShot>>{});
  f(std::integral_constant<AllReduceConfig, persistentPackets<Protocol::LL16, Pattern::TwoShot>>{});
  f(std::integral_constant<AllReduceConfig, persistentPackets<Protocol::LL128Ordered, Pattern::OneShot>>{});
  f(std::integral_constant<AllReduceConfig, persistentPackets<Protocol::Sentinel, Pattern::TwoShot>>{});
  if constexpr (Backend<>::onGpu)
    f(std::integral_constant<AllReduceConfig, persistentPackets<Protocol::LL128, Pattern::TwoShot>>{});
  f(std::integral_constant<AllReduceConfig, persistentPipeline>{});
  f(std::integral_constant<AllReduceConfig, serialPipeline>{});
}

TEST_CASE("persistent kernel: many calls of every protocol, with a grid barrier after each") {
  forEachPersistentConfig([](auto tag) {
    CAPTURE(tag.value.protocol);
    const Shape shape{2, 2, persistentWidth(tag.value) == 16 && !Backend<>::onGpu ? 1 : 2};
    CHECK(persistentResultsAreRight<tag.value>(shape, {}));
  });
}

TEST_CASE("persistent kernel: a block barrier is enough for pipelines, if no block reads what another has stored") {
  const PersistentRun run{.between = Between::BlockBarrier, .readsPrevious = false};
  CHECK(persistentResultsAreRight<persistentPipeline>({2, 2, 2}, run));
  CHECK(persistentResultsAreRight<serialPipeline>({3, 1, 2}, run));
}

TEST_CASE("persistent kernel: calls by some warps of each block") {
  forEachPersistentConfig([](auto tag) {
    CAPTURE(tag.value.protocol);
    const PersistentRun run{.firstWarp = 1, .calls = 100};
    CHECK(persistentResultsAreRight<tag.value>({2, 1, persistentWidth(tag.value) == 16 ? 2 : 3}, run));
  });
}

// Without a barrier, threads read the epoch word of a call while it is advanced: an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("persistent kernel: these checks detect calls without a barrier between them") {
  bool caught = false;
  for (int attempt = 0; attempt < 10 && !caught; ++attempt) {
    const PersistentRun run{.between = Between::Nothing, .calls = 100};
    try {
      caught =
          !persistentResultsAreRight<persistentPackets<Protocol::LL16, Pattern::OneShot>>({2, 2, 2}, run, 100'000'000);
    } catch (const std::exception&) {  // emulation: threads of a block are in different calls
      caught = true;
    }
  }
  CHECK(caught);
}
#endif

}  // namespace mscclpp::test
