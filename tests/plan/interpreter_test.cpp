// Plans interpreted by emulated threads: whole outputs, for several sizes, types, and forms of packets.
#include "mscclpp/plan/interpreter.hpp"

#include <doctest/doctest.h>

#include "emulated_plan.hpp"
#include "mscclpp/emulation/wait_monitor.hpp"
#include "mscclpp/plan/check.hpp"
#include "mscclpp/plan/fault_message.hpp"
#include "mscclpp/plan/static_role.hpp"
#include "plan_reference.hpp"
#include "sample_plans.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::plan {
namespace {

/// Interprets a plan, for checkCall().
struct Interpreted {
  template <class T, class Op, class Grid>
  static void run(int /*rank*/, const Grid& grid, const ExecutionArgs& args) {
    interpret<T>(grid, args, [] {});
  }
};

/// A call of all ranks: poisoned outputs, whose whole content is compared; `offset` elements before each buffer.
template <class T, class Op, class Execution = Interpreted>
void checkCall(EmulatedPlan& emulated, const Plan& plan, const std::vector<std::vector<T>>& inputs, int threads,
               std::size_t offset, bool inPlace = false) {
  const std::size_t count = inputs[0].size();
  const std::vector<T> expected = expectedOutput<T, Op>(plan.collective, inputs);
  const std::size_t bytes = (expected.size() + 2 * offset) * sizeof(T);
  emulation::SymmetricBuffers in(plan.ranks, bytes + 16, test::poisonByte),
      out(plan.ranks, bytes + 16, test::poisonByte);
  const auto& to = inPlace ? in : out;
  for (int rank = 0; rank < plan.ranks; ++rank)
    if (count != 0) std::memcpy(in.at(rank) + offset * sizeof(T), inputs[rank].data(), count * sizeof(T));
  const auto input = in.window().subWindow(offset * sizeof(T));
  const auto output = to.window().subWindow(offset * sizeof(T));
  const Message message = messageOf(count * sizeof(T), sizeof(T), plan.chunksPerPart, plan.alignment);
  emulation::WaitMonitor monitor;
  std::vector<ExecutionArgs> args;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    args.push_back(emulated.args(rank, input, output, message, test::valueOf<Op>,
                                 BoundedWait(monitor.deviceControl(), std::uint64_t{10'000'000'000})));
  }
  emulation::launch(emulated.shape(threads),
                    [&](int rank, const auto& grid) { Execution::template run<T, Op>(rank, grid, args[rank]); });
  monitor.check();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::vector<T> whole(expected.size() + 2 * offset), result(expected.size() + 2 * offset);
    std::memset(static_cast<void*>(whole.data()), test::poisonByte, whole.size() * sizeof(T));
    std::copy(expected.begin(), expected.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset));
    std::memcpy(static_cast<void*>(result.data()), to.at(rank), result.size() * sizeof(T));
    CAPTURE(rank);
    CHECK(areSame(whole, result));
  }
}

TEST_CASE("sizes of chunks, iterations and shares") {
  constexpr Message message = messageOf(1000, 4, 3, 16);
  static_assert(message.pitch == 336 && message.bytesAt(0) == 336 && message.bytesAt(2) == 328);
  static_assert(message.offsetOf(2) == 672 && message.offsetOf(3) == 1000 && message.offsetOf(5) == 1672);
  static_assert(messageOf(20, 4, 4, 16).bytesAt(1) == 4 && messageOf(20, 4, 4, 16).bytesAt(2) == 0);
  static_assert(messageOf(24, 8, 2, 4).pitch == 16, "chunks are whole elements");
  static_assert(iterationsOf(message, 100) == 3 && iterationOf(328, 100, 2).size == 328 - 224);
  static_assert(iterationOf(100, 100, 1).size == 0 && iterationOf(100, 0, 0).size == 100);
  std::uint64_t covered = 0;
  for (int share = 0; share < 3; ++share) {
    const ByteSpan part = shareOf({32, 100}, share, 3);
    CHECK(part.begin == 32 + covered);
    covered += part.size;
  }
  CHECK(covered == 100);
}

TEST_CASE("the sample plans are proven") {
  for (const int ranks : {2, 4}) {
    for (const SamplePlan& sample : samplePlans(ranks)) CHECK(describe(sample.plan, check(sample.plan)) == "");
    const Plan port = twoShotPlan(ranks, 2, 0, Access::Port);
    CHECK(describe(port, check(port)) == "");
  }
}

TEST_CASE("every plan with every count") {
  for (const int ranks : test::thinned({2, 3, 5}, {3})) {
    for (const SamplePlan& sample : samplePlans(ranks)) {
      CAPTURE(sample.name);
      CAPTURE(ranks);
      for (const PacketFormat format : {PacketFormat::LL8, PacketFormat::LL16}) {
        EmulatedPlan emulated(sample.plan, 2048, format);
        unsigned seed = 0;
        for (const std::size_t count : {1, 2, 7, 37, 501, 64, 256, 3}) {
          CAPTURE(count);
          checkCall<float, Sum>(emulated, sample.plan, exactInputs<float>(count, ranks, ++seed), 2, count % 4,
                                sample.plan.inPlace);
        }
      }
    }
  }
}

TEST_CASE("programs longer than the shared memory are copied to it in parts, and loops go back to parts before") {
  for (const SamplePlan& sample : samplePlans(3)) {
    CAPTURE(sample.name);
    for (const std::size_t mostSharedBytes : {1, 500, 1500}) {
      EmulatedPlan emulated(sample.plan, 2048, PacketFormat::LL16, 1, mostSharedBytes);
      unsigned seed = 7;
      for (const std::size_t count : {1, 501, 64})
        checkCall<float, Sum>(emulated, sample.plan, exactInputs<float>(count, 3, ++seed), 2, 0, sample.plan.inPlace);
    }
  }
  const Plan plan = longPlan(2, 2000, 1000);
  CHECK(describe(plan, check(plan)) == "");
  EmulatedPlan emulated(plan, 2048, PacketFormat::LL16);
  CHECK(emulated.shape(1).sharedBytes <= std::size_t{48} << 10);
  for (unsigned seed = 0; seed < 3; ++seed)
    checkCall<float, Sum>(emulated, plan, exactInputs<float>(100 + seed, 2, seed), 2, 0);

  const RankProgram program = programOf(plan, 0);
  const BlockProgram whole = viewOf(program.blocks[0]);
  CHECK(whole.operationCount > 2000);
  const ProgramWindows fits = windowsOf(whole, std::size_t{1} << 20);
  CHECK(fits.ofOperations.front() == Range{0, whole.operationCount});
  CHECK(countOf(fits.ofOperations) == whole.operationCount);
  CHECK(windowsOf(whole, fits.bytes).ofOperations.front().count == whole.operationCount);
  CHECK(windowsOf(whole, fits.bytes - 1).ofOperations.front().count < whole.operationCount);
  const ProgramWindows single = windowsOf(whole, 0);
  for (std::int32_t i = 0; i < whole.operationCount; ++i) CHECK(single.ofOperations[i] == Range{i, 1});
}

TEST_CASE("a loop that fits in a window is in one") {
  // Operations without operands: Syncs, and a loop from operation 5 to 8.
  BlockLists lists;
  lists.operations.resize(20);
  lists.operations[5].kind = OperationKind::LoopBegin;
  lists.operations[8].kind = OperationKind::LoopEnd;
  const auto windows = [&](std::int32_t most) {
    std::vector<std::int32_t> counts;
    const BlockProgram program = viewOf(lists);
    const std::size_t bytes = windowsOf({program.operations, nullptr, nullptr, nullptr, most, 0, 0}, 1 << 20).bytes;
    const ProgramWindows found = windowsOf(program, bytes);
    CHECK(found.bytes == bytes);
    for (std::int32_t i = 0; i < 20; i += counts.back()) counts.push_back(found.ofOperations[i].count);
    for (std::int32_t i = 0, first = 0; i < 20; ++i) {
      if (i == first + found.ofOperations[first].count) first = i;
      CHECK(found.ofOperations[i] == found.ofOperations[first]);
      CHECK(found.ofOperations[first].first == first);
    }
    return counts;
  };
  using Counts = std::vector<std::int32_t>;
  CHECK(windows(20) == Counts{20});
  CHECK(windows(9) == Counts{9, 9, 2});
  CHECK(windows(8) == Counts{5, 8, 7});
  CHECK(windows(6) == Counts{5, 6, 6, 3});
  CHECK(windows(5) == Counts{5, 5, 5, 5});
  CHECK(windows(4) == Counts{4, 1, 4, 4, 4, 3});
  CHECK(windows(3) == Counts{3, 3, 3, 3, 3, 3, 2});  // the loop is longer than a window
}

template <class T>
void checkType() {
  CAPTURE(sizeof(T));
  const Plan plans[] = {twoShotPlan(3), oneShotPacketPlan(3)};
  for (const Plan& plan : plans) {
    EmulatedPlan emulated(plan, 2048, PacketFormat::LL16);
    unsigned seed = 40;
    test::forEachOperator([&]<class Op>() {
      if (std::is_same_v<Op, Average>) return;
      checkCall<T, Op>(emulated, plan, test::inputsOf<T>(77, 3, ++seed), 2, 1);
    });
  }
}

TEST_CASE("all types and operators, rounded once, with special values") {
  checkType<f8e4m3>();
  checkType<float>();
  if constexpr (!test::detectsRaces) {
    checkType<bf16>();
    checkType<std::int64_t>();
  }
}

constexpr Plan staticTwoShot() {
  return twoShotPlan(2, 2, 96);
}
constexpr Plan staticPackets() {
  return twoShotPacketPlan(3, 2);
}
constexpr Plan staticGather() {
  return gatherByReadingPlan(2, true);
}

/// Executes the plan of `make` as code.
template <auto make>
struct Specialised {
  struct PlanOf {
    static constexpr auto value = freeze<make>();
  };
  template <class T, class Op, class Grid>
  static void run(int of, const Grid& grid, const ExecutionArgs& args) {
    withStaticRank<PlanOf>(of, [&]<int rank>() { executeStatic<T, Op, PlanOf, rank>(grid, args); });
  }
};

template <auto make>
void checkSpecialised() {
  const Plan plan = make();
  for (const PacketFormat format : {PacketFormat::LL8, PacketFormat::LL16}) {
    EmulatedPlan emulated(plan, 2048, format);
    unsigned seed = 70;
    for (const std::size_t count : {1, 37, 501, 64, 256}) {
      CAPTURE(count);
      const auto inputs = exactInputs<bf16>(count, plan.ranks, ++seed);
      checkCall<bf16, Sum, Specialised<make>>(emulated, plan, inputs, 2, count % 4);
      checkCall<bf16, Sum>(emulated, plan, inputs, 2, count % 4);  // the two are the same protocol
    }
  }
}

TEST_CASE("plans that are constants are executed as code") {
  checkSpecialised<staticTwoShot>();
  checkSpecialised<staticPackets>();
  checkSpecialised<staticGather>();
}

TEST_CASE("in place") {
  for (const Plan& plan : {twoShotPlan(4, 2), twoShotPacketPlan(4, 2), ringPlan(4)}) {
    EmulatedPlan emulated(plan, 2048, PacketFormat::LL8);
    for (unsigned seed = 0; seed < 5; ++seed)
      checkCall<float, Sum>(emulated, plan, exactInputs<float>(100 * seed + 33, 4, seed), 2, 0, true);
  }
}

TEST_CASE("flags of packets wrap") {
  const std::uint64_t last = 0xffffffffu;
  CHECK(flagOf(last - 1) == 0xffffffffu);
  CHECK(flagOf(last) == 1);
  const Plan plan = oneShotPacketPlan(2);
  EmulatedPlan emulated(plan, 2048, PacketFormat::LL16, last - 5);
  for (unsigned seed = 0; seed < 12; ++seed)
    checkCall<float, Sum>(emulated, plan, exactInputs<float>(90, 2, seed), 1, 0);
  CHECK(emulated.epoch(0, 0) == last + 7);
}

TEST_CASE("a failed wait names rank, peer, block and operation, and ends the sequence of calls") {
  const Plan plan = twoShotPlan(2);
  EmulatedPlan emulated(plan, 256, PacketFormat::LL16);
  emulation::SymmetricBuffers in(2, 64), out(2, 64, test::poisonByte);
  emulation::WaitMonitor monitor;
  const ExecutionArgs args = emulated.args(0, in.window(), out.window(), messageOf(64, 4, 2, 16), ReduceOp::SUM,
                                           BoundedWait(monitor.deviceControl(), std::uint64_t{30'000'000}));
  const auto launch = [&] {
    emulation::launch({.threads = 2, .sharedBytes = 4096},
                      [&](int, const auto& grid) { interpret<float>(grid, args, [] {}); });
  };
  launch();
  CHECK_THROWS_WITH(monitor.check(),
                    doctest::Contains("rank 0, block 0, operation 3 of the plan, waited for a signal of rank 1 past"));
  CHECK(emulated.epoch(0, 0) == (ExecutionState::stopped | 1));
  launch();
  CHECK(emulated.epoch(0, 0) == (ExecutionState::stopped | 1));
  for (int i = 0; i < 64; ++i) CHECK(out.at(1)[i] == static_cast<std::byte>(test::poisonByte));
}

}  // namespace
}  // namespace mscclpp::plan
