// Cases of collective/call_check.hpp: right calls pass, and wrong ones leave a record and touch no data.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "mscclpp/basic/wait_error.hpp"
#include "mscclpp/collective/all_gather_v.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/all_to_all_v.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr int checkRanks = 3;
inline constexpr int checkCalls = 40;
inline constexpr std::size_t checkCapacity = 200;  // elements

/// The parameters of the ranks.
struct CheckParameters {
  Window<> scratch, epochs, inputs, outputs, barriers;
  PipelineShape shape;
  BoundedWait wait;
  std::size_t counts[checkRanks];
  int calls;
  int absentRank;                    ///< makes no call; -1: none
  int narrowRank;                    ///< calls with one warp per block only; -1: none
  int otherRank;                     ///< calls the other collective; -1: none
  std::uint64_t delays;              ///< nanoseconds: ranks wait before some of their calls, in a pattern that differs
  ReduceOp op = ReduceOp::SUM;       ///< of a collective whose operator is chosen at run time
  ReduceOp otherOp = ReduceOp::SUM;  ///< the same of otherRank
};

/// Calls of C, or of Other by one rank, on the same scratch. Each call but the last has fewer elements than the one
/// before by one.
template <class C, class Other>
struct CheckBody {
  CheckParameters p;

  MSCCLPP_HOST_DEVICE std::uint32_t* failures(int rank) const {
    return reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, 128));
  }
  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == p.absentRank) return;
    if (rank == p.narrowRank) {
      const auto warps = grid.warps(0, 1);
      if (warps.isMember()) call(rank, warps);
    } else {
      call(rank, grid);
    }
  }

 private:
  template <class GridType>
  MSCCLPP_HOST_DEVICE void call(int rank, const GridType& grid) const {
    typename C::Args args{};
    args.team = Team<>(rank, checkRanks);
    for (int r = 0; r < checkRanks; ++r) args.window.base[r] = p.scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
    args.scratch = C::scratchFor(checkCapacity, checkRanks, p.shape);
    args.wait = p.wait;
    if constexpr (requires { args.op.op; }) args.op = {rank == p.otherRank ? p.otherOp : p.op};
    auto wait = p.wait;
    const ArraySource<std::int32_t> source(reinterpret_cast<const std::int32_t*>(p.inputs.at(rank)));
    const ArraySink<std::int32_t> sink(reinterpret_cast<std::int32_t*>(p.outputs.at(rank)));
    for (int call = 0; call < p.calls; ++call) {
      args.count = p.counts[rank] - static_cast<std::size_t>(call);
      if ((call + rank) % checkRanks == 0) {
        const auto start = arch::nanoseconds();
        while (arch::nanoseconds() - start < p.delays) arch::backoff(200);
      }
      const bool succeeded =
          rank == p.otherRank ? Other::run(grid, args, source, sink) : C::run(grid, args, source, sink);
      if (!succeeded) {
        arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(failures(rank), 1u);
        return;
      }
      if (!reinterpret_cast<GridBarrier*>(p.barriers.at(rank))->sync(grid, wait)) return;
    }
  }
};

/// A run with scratch of its own.
template <class C, class Other = C>
struct CheckRun {
  using Scratch = typename C::Scratch;
  Shape launch{checkRanks, 2, 2};
  CheckParameters p{{}, {}, {}, {}, {}, {8, 2, 4}, {}, {100, 100, 100}, 1, -1, -1, -1, 0};
  std::uint64_t firstEpoch = Scratch::firstEpoch;
  std::uint64_t timeout = waitTimeout;

  bool dataIsUntouched = true;  ///< scratch but for CallWords, epochs and outputs are as before
  bool resultIsRight = true;    ///< of the longest call
  std::uint32_t failures = 0;   ///< threads whose run() returned false; none on a CPU, where it throws

  std::optional<WaitRecord> run() {
    Backend<> backend;
    const Scratch layout = C::scratchFor(checkCapacity, checkRanks, p.shape);
    auto scratch = backend.allocate(checkRanks, layout.windowBytes(), Scratch::initialByte);
    auto epochs = backend.allocate(checkRanks, epochWords * sizeof(std::uint64_t), 0);
    auto inputs = backend.allocate(checkRanks, 4 * checkCapacity * sizeof(std::int32_t), 0);
    auto outputs = backend.allocate(checkRanks, 4 * checkCapacity * sizeof(std::int32_t), poisonByte);
    auto barriers = backend.allocate(checkRanks, 256, 0);
    std::vector<std::int32_t> values(4 * checkCapacity);
    for (int rank = 0; rank < checkRanks; ++rank) {
      epochs.write(rank, std::vector<std::uint64_t>(epochWords, firstEpoch));
      if constexpr (requires { layout.countersOffset(); }) {
        const std::size_t words = layout.countersBytes() / sizeof(std::uint64_t);
        scratch.write(rank, std::vector<std::uint64_t>(words, firstEpoch), layout.countersOffset());
      }
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 10 + 1) << rank;
      inputs.write(rank, values);
    }
    std::vector<std::vector<std::byte>> before;
    for (int rank = 0; rank < checkRanks; ++rank) before.push_back(scratch.read(rank));
    p.scratch = scratch.window();
    p.epochs = epochs.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.barriers = barriers.window();
    p.wait = backend.wait(timeout);
    std::optional<WaitRecord> record;
    try {
      record = backend.run(launch, CheckBody<C, Other>{p});
    } catch (const InvalidCall& call) {
      record = call.record();
      CHECK(call.what() == sentenceOf(*record));
      CHECK_FALSE(Backend<>::onGpu);
    }

    dataIsUntouched = resultIsRight = true;
    failures = 0;
    for (int rank = 0; rank < checkRanks; ++rank) {
      auto after = scratch.read(rank);
      const auto callWords = static_cast<std::ptrdiff_t>(layout.callOffset(0));
      const auto callWordsEnd = static_cast<std::ptrdiff_t>(layout.callOffset(checkRanks));
      std::copy(after.begin() + callWords, after.begin() + callWordsEnd,
                before[static_cast<std::size_t>(rank)].begin() + callWords);
      dataIsUntouched &= after == before[static_cast<std::size_t>(rank)];
      for (const auto epoch : epochs.template read<std::uint64_t>(rank)) dataIsUntouched &= epoch == firstEpoch;
      const auto output = outputs.template read<std::int32_t>(rank);
      for (std::size_t i = 0; i < output.size(); ++i) {
        const bool isPoison = output[i] == static_cast<std::int32_t>(0xa5a5a5a5);
        dataIsUntouched &= isPoison;
        resultIsRight &= i < p.counts[rank] ? output[i] == static_cast<std::int32_t>(i * 10 + 1) * 7 : isPoison;
      }
      failures += barriers.template read<std::uint32_t>(rank)[128 / sizeof(std::uint32_t)];
    }
    return record;
  }
};

template <Protocol protocol, class Op = Sum>
using CheckedAllReduce =
    AllReduce<std::int32_t, Op, AllReduceConfig{.protocol = protocol, .pattern = Pattern::TwoShot}>;

static_assert(checked);

TEST_CASE_TEMPLATE("call check: right calls pass, however the ranks are delayed", C, CheckedAllReduce<Protocol::LL16>,
                   CheckedAllReduce<Protocol::Sentinel>, CheckedAllReduce<Protocol::Simple>) {
  CheckRun<C> check;
  check.p.calls = checkCalls;
  check.p.delays = 100'000;
  for (const std::uint64_t epoch : {std::uint64_t{C::Scratch::firstEpoch}, (std::uint64_t{1} << 32) - 12}) {
    check.firstEpoch = epoch;
    const auto record = check.run();
    CHECK_FALSE(record);
    CHECK(check.resultIsRight);
    CHECK_FALSE(check.dataIsUntouched);
    CHECK(check.failures == 0);
  }
}

TEST_CASE_TEMPLATE("call check: another count is reported with both numbers", C, CheckedAllReduce<Protocol::LL16>,
                   CheckedAllReduce<Protocol::Simple>) {
  CheckRun<C> check;
  check.p.counts[1] = 200;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::OtherCount);
  CHECK(record->operation == WaitOperation::Call);
  CHECK((record->rank == 1) != (record->peer == 1));
  CHECK(record->expected == (record->rank == 1 ? 200 : 100));
  CHECK(record->seen == (record->peer == 1 ? 200 : 100));
  CHECK(check.dataIsUntouched);
  if (Backend<>::onGpu) CHECK(check.failures > 0);
}

TEST_CASE("call check: a count whose upper half differs") {
  CheckRun<CheckedAllReduce<Protocol::Simple>> check;
  check.p.counts[2] = 100 + (std::size_t{1} << 32);
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::OtherCount);
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: another operator, with the same scratch") {
  CheckRun<CheckedAllReduce<Protocol::LL16>, CheckedAllReduce<Protocol::LL16, Max>> check;
  check.p.otherRank = 2;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::OtherCollective);
  CHECK((record->rank == 2) != (record->peer == 2));
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: an operator that is chosen at run time: the same, another, and none") {
  CheckRun<CheckedAllReduce<Protocol::LL16, RuntimeOp>> check;
  check.p.otherRank = 2;
  CHECK_FALSE(check.run());
  CHECK(check.resultIsRight);
  check.p.otherOp = ReduceOp::MAX;
  const auto other = check.run();
  REQUIRE(other);
  CHECK(other->outcome == WaitOutcome::OtherCollective);
  CHECK((other->rank == 2) != (other->peer == 2));
  CHECK(check.dataIsUntouched);
  check.p.op = check.p.otherOp = ReduceOp::NOP;
  const auto none = check.run();
  REQUIRE(none);
  CHECK(none->outcome == WaitOutcome::InvalidCall);
  CHECK(sentenceOf(*none).find("operator") != std::string::npos);
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: another number of threads") {
  CheckRun<CheckedAllReduce<Protocol::LL16>> check;
  check.p.narrowRank = 1;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::OtherGrid);
  CHECK((record->rank == 1) != (record->peer == 1));
  const std::uint64_t narrow = record->rank == 1 ? record->expected : record->seen;
  const std::uint64_t wide = record->rank == 1 ? record->seen : record->expected;
  CHECK(wide - narrow == 65536 * Backend<>::warpWidth);
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: more elements than the scratch is for") {
  CheckRun<CheckedAllReduce<Protocol::LL16>> check;
  for (auto& count : check.p.counts) count = 3 * checkCapacity;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::InvalidCall);
  CHECK(record->expected == 3 * checkCapacity);
  CHECK((record->seen & 0xffff) == 2);
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: a pipeline with another number of blocks, or slots that are no power of two") {
  CheckRun<CheckedAllReduce<Protocol::Simple>> check;
  SUBCASE("blocks") {
    check.launch.blocks = 1;
  }
  SUBCASE("slots") {
    check.p.shape.slots = 6;
  }
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::InvalidCall);
  CHECK(check.dataIsUntouched);
}

/// A collective with more stages that receive than it says.
struct UnderstatedStages
    : OverSession<std::int32_t, CollectiveConfig{.protocol = Protocol::Simple}, 2, 2, SlotReuse::ByCredits> {
  using Base = OverSession<std::int32_t, CollectiveConfig{.protocol = Protocol::Simple}, 2, 2, SlotReuse::ByCredits>;
  static constexpr CollectiveConfig configuration{.protocol = Protocol::Simple};
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t count, int ranks, const PipelineShape& shape) {
    return Base::makeScratch(count, ranks, shape);
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) { return Base::fits(args, 0, shape); }
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    return Base::template withSession<UnderstatedStages>(grid, args, TraceId::AllReduce, [&](auto& session) {
      const EvenSlices<std::int32_t, Index> slices(args.count, args.team.size());
      return session.run(eachPeer(slices) | from(source) | send<0>(),
                         ownSlice(slices) | from(source) | reduce<0>(Sum()) | share<1>() | into(sink),
                         eachPeer(slices) | receive<1>() | into(sink));
    });
  }
};

TEST_CASE("call check: a pipeline whose stages need more slots than its scratch was made with") {
  CheckRun<UnderstatedStages> check;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::InvalidCall);
  CHECK(check.dataIsUntouched);
}

TEST_CASE("call check: a rank that does not call") {
  CheckRun<CheckedAllReduce<Protocol::LL16>> check;
  check.p.absentRank = 1;
  check.timeout = 300'000'000;
  const auto record = check.run();
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::Deadline);
  CHECK(record->operation == WaitOperation::Call);
  CHECK(record->peer == 1);
  CHECK(check.dataIsUntouched);
}

/// A call with a count for each rank, of which one of rank 1 is wrong.
template <class C>
struct WrongPartBody {
  Window<> scratch, epochs;
  BoundedWait wait;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank != 1) return;
    typename C::Args args{};
    args.team = Team<>(rank, 2);
    for (int r = 0; r < 2; ++r) args.window.base[r] = scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    args.scratch = C::scratchFor(checkCapacity, 2);
    args.wait = wait;
    args.count = checkCapacity;
    if constexpr (requires { args.sendCounts; }) {
      args.receiveCounts[0] = checkCapacity + 1;
    } else {
      args.counts[0] = checkCapacity + 1;
    }
    C::run(grid, args, ArraySource<std::int32_t>(nullptr), ArraySink<std::int32_t>(nullptr));
  }
};

TEST_CASE_TEMPLATE("call check: a count of one rank that is above the bound of all", C,
                   AllGatherV<std::int32_t, CollectiveConfig{}>, AllToAllV<std::int32_t, CollectiveConfig{}>) {
  Backend<> backend;
  const auto layout = C::scratchFor(checkCapacity, 2);
  auto scratch = backend.allocate(2, layout.windowBytes(), C::Scratch::initialByte);
  auto epochs = backend.allocate(2, epochWords * sizeof(std::uint64_t), 0);
  epochs.write(1, std::vector<std::uint64_t>(epochWords, C::Scratch::firstEpoch));
  const auto before = scratch.read(1);
  std::optional<WaitRecord> record;
  try {
    record = backend.run({2, 1, 1}, WrongPartBody<C>{scratch.window(), epochs.window(), backend.wait(waitTimeout)});
  } catch (const InvalidCall& call) {
    record = call.record();
  }
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::InvalidCall);
  CHECK(record->rank == 1);
  CHECK(record->expected == checkCapacity);
  CHECK(scratch.read(1) == before);
  CHECK(epochs.template read<std::uint64_t>(1).front() == std::uint64_t{C::Scratch::firstEpoch});
}

TEST_CASE("call check: types have different numbers") {
  using namespace detail;
  constexpr std::uint32_t numbers[] = {
      typeNumber<AllReduce<float, Sum, AllReduceConfig{}>>(),
      typeNumber<AllReduce<float, Max, AllReduceConfig{}>>(),
      typeNumber<AllReduce<std::int32_t, Sum, AllReduceConfig{}>>(),
      typeNumber<AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL8}>>(),
      typeNumber<AllReduce<float, Sum, AllReduceConfig{.pattern = Pattern::TwoShot}>>(),
      typeNumber<AllReduce<float, Sum, AllReduceConfig{.ranks = 2}>>(),
      typeNumber<AllReduce<float, Sum, AllReduceConfig{.lookahead = 3}>>(),
  };
  for (const auto& a : numbers) {
    for (const auto& b : numbers) CHECK((a == b) == (&a == &b));
  }
}

}  // namespace mscclpp::test
