#include "plans.hpp"

#include <algorithm>

#include "kernels/algorithm_call.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/executor.hpp"

namespace mscclpp::perf {

namespace {

constexpr Goal goalOf(PlanCode code) {
  return code == PlanCode::Specialised ? Goal{1.02, 0.05} : Goal{1.04, 0.7};
}

void requireSuitable(const Options& options, const std::string& file, const ExecutionPlan& plan, int ranks) {
  const auto require = [&](bool suits, const std::string& why) {
    if (!suits) throw Error("--plan " + file + ": the plan is " + why, ErrorCode::InvalidUsage);
  };
  const std::string wanted = kernels::algorithmApiNameOf(options.collective);
  require(plan.collective() == wanted, "of the collective " + plan.collective() + ", not " + wanted);
  require(plan.plan().ranks == ranks,
          "for " + std::to_string(plan.plan().ranks) + " ranks: use -n " + std::to_string(plan.plan().ranks));
  require(plan.isInPlace() == options.inPlace,
          plan.isInPlace() ? "made for calls in place: use --in-place" : "not made for calls in place");
}

/// Enough for the scratch of most plans: a part from each rank, twice.
std::size_t scratchFor(const Options& options, int ranks) {
  const std::uint64_t longest = *std::max_element(options.sizes.begin(), options.sizes.end());
  return std::max<std::size_t>(Executor::DefaultScratchBufferSize, 2 * static_cast<std::size_t>(ranks) * longest);
}

}  // namespace

std::vector<Implementation> planImplementations(const Options& options,
                                                const std::shared_ptr<Communicator>& communicator, DeviceType device,
                                                const Implementation& like) {
  std::vector<Implementation> all;
  const int rank = communicator->bootstrap()->getRank();
  const int ranks = communicator->bootstrap()->getNranks();
  for (const std::string& file : options.plans) {
    const ExecutionPlan ofFirst(file, 0);
    requireSuitable(options, file, ofFirst, ranks);
    const ExecutionPlan plan = ofFirst.forRank(rank);
    for (const PlanCode code : {PlanCode::Specialised, PlanCode::Interpreted}) {
      if (device == DeviceType::CPU && code == PlanCode::Specialised) continue;
      const auto executor = std::make_shared<Executor>(communicator, scratchFor(options, ranks), device, code);
      Implementation implementation = like;
      implementation.name = "plan " + plan.name() + (code == PlanCode::Interpreted ? " interpreted" : "");
      implementation.algorithm = "";
      implementation.run = [executor, plan, rank](const CollectiveCall& call) {
        const plan::RankPlan& own = plan.plan().rankPlans[static_cast<std::size_t>(rank)];
        const auto bytesOf = [&](std::int32_t chunks) {
          return static_cast<std::size_t>(chunks / plan.plan().chunksPerPart) * call.count * sizeOf(call.type);
        };
        executor->execute(rank, call.input, call.output, bytesOf(own.inputChunks), bytesOf(own.outputChunks), call.type,
                          plan, call.stream, PacketType::LL16, call.reduction.op);
      };
      implementation.supports = [plan](const CollectiveCall& call) { return call.algorithm.empty(); };
      implementation.algorithmOf = [executor, plan, code, name = implementation.name](const auto&) {
        return code == PlanCode::Interpreted || executor->isSpecialised(plan) ? name : name + ", not compiled";
      };
      implementation.check = [executor] { executor->check(); };
      implementation.roundsEachAddition = true;
      implementation.canRecord = false;
      implementation.goal = goalOf(code);
      all.push_back(implementation);
    }
  }
  return all;
}

}  // namespace mscclpp::perf
