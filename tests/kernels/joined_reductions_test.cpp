// Which reductions of a group one call performs, on CPU ranks, and what they give.
#include "kernels/joined_reductions.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/recorded_calls.hpp"
#include "tests/kernels/reduction_group.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

const std::vector<DataType> someTypes{DataType::FLOAT32, DataType::BFLOAT16, DataType::FLOAT16, DataType::INT32};

}  // namespace

TEST_CASE("joined reductions: those of the same collective, type and operator, and not too many") {
  const CollectiveCall sum{.collective = CollectiveType::AllReduce, .count = 100};
  const auto count = [](const std::vector<CollectiveCall>& calls, std::size_t most = mostJoinedBytes) {
    return countOfJoinedReductions(calls, most);
  };
  const auto copies = [](const CollectiveCall& call, std::size_t n) { return std::vector<CollectiveCall>(n, call); };
  CHECK(count({}) == 0);
  CHECK(count(copies(sum, 5)) == 5);
  CHECK(count(copies(sum, 100)) == maxJoinedReductions);
  CHECK(count(copies(sum, 5), 3 * 400) == 3);
  CHECK(count(copies(sum, 5), 0) == 0);

  CollectiveCall other = sum;
  const auto joinedWithOther = [&] { return count({sum, sum, other, sum}); };
  CHECK(joinedWithOther() == 4);
  other.count = 0;
  CHECK(joinedWithOther() == 4);
  other = sum;
  // What a rank has for itself changes nothing.
  int data = 0;
  other.input = other.output = &data;
  other.reduction.factor = &data;
  CHECK(joinedWithOther() == 4);
  other = sum;
  other.type = DataType::INT32;
  CHECK(joinedWithOther() == 2);
  other = sum;
  other.reduction = ReduceOp::AVG;
  CHECK(joinedWithOther() == 2);
  other = sum;
  other.algorithm = "pipelined";
  CHECK(joinedWithOther() == 2);
  other = sum;
  other.count = longestJoinedReduction / sizeof(float);
  CHECK(joinedWithOther() == 4);
  ++other.count;
  CHECK(joinedWithOther() == 2);
  for (const auto collective : {CollectiveType::ReduceScatter, CollectiveType::Reduce, CollectiveType::AllGather}) {
    other = sum;
    other.collective = collective;
    CHECK(joinedWithOther() == 2);
    CHECK(count(copies(other, 3)) == (collective == CollectiveType::ReduceScatter ? 3 : 0));
  }
}

TEST_CASE("joined reductions: the one call has whole packs of each") {
  const std::vector<CollectiveCall> calls{
      {.count = 5, .reduction = ReduceOp::MAX}, {.count = 8, .reduction = ReduceOp::MAX}, {}};
  const CollectiveCall joined = joinedCallOf(calls);
  CHECK(joined.count == 16);
  CHECK(joined.reduction.op == ReduceOp::MAX);
}

TEST_CASE("joined reductions: one call for those that are alike") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const int rank = bootstrap->getRank();
    Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    RecordedCalls calls(collectives, rank);
    const auto check = [&](const std::vector<CollectiveCall>& alike, std::size_t wanted) {
      std::vector<std::vector<float>> data;
      std::vector<CollectiveCall> group = alike;
      for (CollectiveCall& call : group) {
        data.emplace_back(3 * call.count, static_cast<float>(rank + 1));
        call.input = data.back().data();
        call.output = data.back().data() + 2 * call.count;
      }
      collectives.run(group);
      CHECK(calls.sinceLast() == wanted);
    };
    const CollectiveCall sum{.count = 1000}, parts{.collective = CollectiveType::ReduceScatter, .count = 70};
    CollectiveCall integers = sum, shortest = sum, longer = sum, tooLong = sum, empty = sum;
    integers.type = DataType::INT32;
    longer.count = mostJoinedBytesOnCpu / 4 / sizeof(float);
    tooLong.count = longestJoinedReduction / sizeof(float) + 1;
    shortest.count = 1;
    empty.count = 0;
    check({sum, sum, sum}, 1);
    check({tooLong, sum, sum, tooLong}, 3);
    check({sum, sum, parts, parts, sum}, 3);
    check({integers, integers}, 2);
    check({sum, empty, sum}, 1);
    check({empty, empty}, 0);
    check(std::vector<CollectiveCall>(maxJoinedReductions + 2, shortest), 2);
    check(std::vector<CollectiveCall>(5, longer), 2);
    bootstrap->barrier();
  });
}

TEST_CASE("joined reductions: all that random groups write") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      const int rank = bootstrap->getRank();
      Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
      for (unsigned seed = 1; seed <= 9; ++seed) {
        const bool areShort = seed % 3 != 0;
        const ReductionGroup group(
            ranks, areShort ? 40 : 8, someTypes,
            areShort ? std::vector<std::size_t>{0, 1, 7, 8, 9, 300} : std::vector<std::size_t>{3, 1000, 9000}, seed);
        Bytes memory = group.memory(rank);
        collectives.run(group.calls(rank, memory.data()));
        const std::string difference = group.differenceOf(rank, memory);
        if (!difference.empty()) throw std::runtime_error("seed " + std::to_string(seed) + ", " + difference);
      }
      bootstrap->barrier();
    });
  }
}
