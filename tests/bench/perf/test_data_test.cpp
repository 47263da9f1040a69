// The check of results in the memory of a CPU rank.
#include "bench/perf/buffers.hpp"
#include "test_data_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// More ranks than cores, so that the process is not bound to one.
constexpr int unpinned = 1 << 20;

}  // namespace

TEST_CASE("the check finds one wrong element, and a byte written behind the end") {
  const auto backend = makeCpuBackend(0, unpinned);
  const auto data = makeCpuTestData();
  testEveryCollective(*backend, *data);
}

TEST_CASE("the ranks' inputs differ") {
  const auto backend = makeCpuBackend(0, unpinned);
  const auto data = makeCpuTestData();
  testInputsDiffer(*backend, *data);
}

TEST_CASE("sizes are nccl-tests'") {
  const auto gathered = shapeOf(CollectiveType::AllGather, 3, 1000, 4);
  CHECK(gathered.count == 83);
  CHECK(gathered.size() == 249);
  CHECK(gathered.input() == 83);
  CHECK(gathered.output(1, 0) == 249);
  const auto reduced = shapeOf(CollectiveType::Reduce, 3, 1000, 4);
  CHECK(reduced.count == 250);
  CHECK(reduced.output(0, 1) == 0);
  CHECK(reduced.output(1, 1) == 250);
  CHECK(shapeOf(CollectiveType::AllToAll, 8, 1, 4).count == 1);
  CHECK(busFactor(CollectiveType::AllReduce, 4) == 1.5);
  CHECK(busFactor(CollectiveType::Scatter, 4) == 0.75);
  CHECK(busFactor(CollectiveType::SendReceive, 4) == 1);
}

TEST_CASE("buffers of successive pairs do not overlap, and a guard is behind each output") {
  constexpr std::size_t elementBytes = 4;
  std::vector<std::byte> memory(1 << 14);
  const BufferPairs pairs{memory.data(), memory.data() + memory.size() / 2};
  for (int i = 0; i < collectiveTypes; ++i) {
    const CollectiveShape shape{static_cast<CollectiveType>(i), 3, 100};
    if (hasVariableCounts(shape.collective)) continue;
    CAPTURE(std::string(nameOf(shape.collective)));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      for (const bool inPlace : {false, true}) {
        CAPTURE(rank);
        CAPTURE(inPlace);
        const CallBuffers first = pairs.at(0, shape, elementBytes, rank, root, inPlace);
        const CallBuffers second = pairs.at(1, shape, elementBytes, rank, root, inPlace);
        const std::byte* inputEnd = first.input + shape.input() * elementBytes;
        const std::byte* outputEnd = first.output + shape.output(rank, root) * elementBytes;
        const bool isOnlyAtRoot =
            shape.collective == CollectiveType::Gather || shape.collective == CollectiveType::Scatter;
        const bool isInPlace = inPlace && hasInPlaceForm(shape.collective) && (!isOnlyAtRoot || rank == root);
        CHECK(first.guard >= inputEnd);
        CHECK(first.guard >= outputEnd);
        CHECK((first.guard == outputEnd || isInPlace));
        CHECK(second.input >= inputEnd + guardBytes);
        CHECK(first.guard + guardBytes <= (isInPlace ? std::min(second.input, second.output) : second.output));
        const bool isShared = first.input <= first.output ? first.output < inputEnd : first.input < first.guard;
        CHECK(isShared == isInPlace);
      }
    }
  }
}
