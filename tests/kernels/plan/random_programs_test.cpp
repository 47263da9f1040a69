// Random chunk programs: their plans are proven, are the same in every format, and compute the collective on CPU ranks.
#include <doctest/doctest.h>

#include <cstring>

#include "message_of.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"
#include "random_program.hpp"
#include "tests/host/spawned_ranks.hpp"

namespace mscclpp::msccl {
namespace {

using plan::CollectiveKind;
using plan::NamedPlan;
using test::messageOf;

constexpr std::size_t maxParts = 4, maxCount = 334;

struct TestProgram {
  RandomProgram random;
  MSCCLProgram program;
  NamedPlan plan;
};

/// Of one to four ranks, with the packets and without, in one or two instances.
std::vector<TestProgram> testPrograms(int ranks) {
  std::vector<TestProgram> programs;
  for (unsigned seed = 0; seed < (ranks == 1 ? 400 : 30); ++seed) {
    RandomProgram random(ranks, seed * 5 + static_cast<unsigned>(ranks));
    // Parts of one chunk have no pieces that lie together.
    const bool isCustom = random.collective().kind == CollectiveKind::Custom;
    MSCCLProgram program = random.program({.name = "random " + std::to_string(seed),
                                           .collective = random.collective(),
                                           .instances = seed % 4 == 3 ? 2 : 1,
                                           .protocol = seed % 2 == 0 ? Protocol::LL : Protocol::Simple,
                                           .interleavedReplication = isCustom || seed % 8 == 3,
                                           .instrFusion = seed % 5 != 4});
    NamedPlan plan = program.compile();
    programs.push_back({std::move(random), std::move(program), std::move(plan)});
  }
  return programs;
}

TEST_CASE("plans of random programs are proven, in every format") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const TestProgram& test : testPrograms(ranks)) {
      CAPTURE(plan::toText(test.plan));
      CHECK(messageOf([&] { plan::verified(test.plan); }) == "");
      CHECK(messageOf([&] { plan::verified(plan::fromText(plan::toText(test.plan))); }) == "");
      CHECK(messageOf([&] { plan::verified(plan::fromJson(plan::toJson(test.plan))); }) == "");
      const CollectiveKind kind = test.plan.collective;
      if (kind == CollectiveKind::Custom || kind == CollectiveKind::SendReceive) continue;  // not MSCCL's
      CHECK(messageOf([&] { plan::verified(plan::fromXml(test.program.toXml())); }) == "");
      CHECK(messageOf([&] { plan::verified(plan::fromXml(plan::toXml(test.plan))); }) == "");
    }
  }
}

/// Numbers that no two elements share, small enough for any sum of them.
int valueOf(int rank, std::size_t element, unsigned call) {
  return static_cast<int>((static_cast<std::size_t>(rank) * 7919 + element * 104729 + call * 31) % 1000003);
}

/// Where the input or output of a rank begins in its memory, and how many parts it has.
struct Parts {
  std::size_t first, count;
};
Parts inputParts(const Collective& of, int rank) {
  const auto ranks = static_cast<std::size_t>(of.ranks), own = static_cast<std::size_t>(rank);
  if (of.kind == CollectiveKind::Custom) return {0, static_cast<std::size_t>(of.inputChunks)};
  if (of.kind == CollectiveKind::AllToAll || of.kind == CollectiveKind::ReduceScatter) return {0, ranks};
  if (of.kind == CollectiveKind::Scatter) return {0, rank == of.root ? ranks : 0};
  if (of.kind == CollectiveKind::Broadcast) return {0, rank == of.root ? 1u : 0u};
  const bool gathers = of.kind == CollectiveKind::AllGather || (of.kind == CollectiveKind::Gather && rank == of.root);
  return {of.inPlace && gathers ? own : 0, 1};
}
Parts outputParts(const RandomProgram& random, int rank) {
  const Collective& of = random.collective();
  const bool scatters =
      of.kind == CollectiveKind::ReduceScatter || (of.kind == CollectiveKind::Scatter && rank == of.root);
  if (of.kind == CollectiveKind::Custom) return {0, static_cast<std::size_t>(of.outputChunks)};
  Parts parts{of.inPlace && scatters ? static_cast<std::size_t>(rank) : 0, 0};
  for (const PartSum& sum : random.sums()) parts.count += sum.rank == rank ? 1 : 0;
  return parts;
}

/// One call with parts of `count` elements; the whole memory of the output is compared.
void check(Executor& executor, const ExecutionPlan& plan, const RandomProgram& random, int rank, Bootstrap& bootstrap,
           std::size_t count, unsigned call, HostBuffer* shared) {
  const Collective& collective = random.collective();
  const Parts in = inputParts(collective, rank), out = outputParts(random, rank);
  std::vector<int> inputs(maxParts * maxCount, -1), outputs(maxParts * maxCount, -1);
  const std::size_t bytes = inputs.size() * sizeof(int);
  int* const to = shared != nullptr ? static_cast<int*>(shared->data()) : outputs.data();
  int* const from = collective.inPlace ? to : shared != nullptr ? to + inputs.size() : inputs.data();
  std::memset(to, 0xff, bytes);
  for (std::size_t i = 0; i < in.count * count; ++i) from[in.first * count + i] = valueOf(rank, i, call);
  std::vector<int> expected(to, to + inputs.size());
  for (const PartSum& sum : random.sums()) {
    if (sum.rank != rank) continue;
    for (std::size_t i = 0; i < count; ++i) {
      int& value = expected[(out.first + static_cast<std::size_t>(sum.part)) * count + i];
      value = 0;
      for (const auto& [of, part] : sum.terms) value += valueOf(of, static_cast<std::size_t>(part) * count + i, call);
    }
  }
  bootstrap.barrier();  // peers write the output
  executor.execute(rank, from + in.first * count, to + out.first * count, in.count * count * sizeof(int),
                   out.count * count * sizeof(int), DataType::INT32, plan, nullptr,
                   call % 2 == 0 ? PacketType::LL16 : PacketType::LL8);
  bootstrap.barrier();
  // In place, what is no output may hold anything after the call.
  const int* const begin = to + out.first * count;
  const bool isRight = std::equal(begin, begin + out.count * count, expected.data() + out.first * count) &&
                       (collective.inPlace || std::memcmp(to, expected.data(), bytes) == 0);
  if (!isRight) CHECK_MESSAGE(isRight, "rank ", rank, ", ", count, " elements: ", plan::toText(plan.plan()));
}

TEST_CASE("random programs compute their collectives, in messages of any size") {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<TestProgram> programs = testPrograms(ranks);
    test::runAsThreads(ranks, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
      const int rank = bootstrap->getRank();
      Executor executor(std::make_shared<Communicator>(bootstrap), std::size_t{8} << 20, DeviceType::CPU);
      HostBuffer shared(2 * maxParts * maxCount * sizeof(int));
      for (std::size_t p = 0; p < programs.size(); ++p) {
        const ExecutionPlan plan(programs[p].plan, rank);
        unsigned call = 0;
        // Each chunk of a custom collective is a part, also those of instances.
        const std::size_t times = plan.plan().collective == CollectiveKind::Custom ? 2 : 1;
        for (const std::size_t count : {1, 167, 2, 19}) {
          check(executor, plan, programs[p].random, rank, *bootstrap, count * times, call++,
                p % 4 < 2 ? &shared : nullptr);
        }
        executor.reset();
        bootstrap->barrier();
      }
    });
  }
}

}  // namespace
}  // namespace mscclpp::msccl
