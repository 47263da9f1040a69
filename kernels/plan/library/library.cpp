#include "mscclpp/kernels/plan/library.hpp"

#include <algorithm>

#include "kernels/plan/message.hpp"
#include "mscclpp/plan/structure.hpp"
#include "programs.hpp"

namespace mscclpp::plan {

namespace {

std::string none(const LibraryArguments&) {
  return {};
}

/// What no plan can be made with.
std::string impossible(const LibraryArguments& arguments) {
  const auto& [ranks, perNode, instances, protocol, inPlace] = arguments;
  if (ranks < 2) return textOf("a plan is for at least two ranks, not ", ranks);
  if (ranks > maxPlanRanks) return textOf("a plan is for at most ", maxPlanRanks, " ranks, not ", ranks);
  if (instances < 1 || instances > maxInstances) {
    return textOf("instances is ", instances, "; it is 1 to ", maxInstances);
  }
  if (perNode < 0 || perNode > ranks) return textOf(perNode, " ranks per node: there are ", ranks, " in all");
  return {};
}

std::string powerOfTwo(const LibraryArguments& arguments) {
  return (arguments.ranks & (arguments.ranks - 1)) == 0 ? "" : "the number of ranks has to be a power of two";
}

std::string nodes(const LibraryArguments& arguments) {
  const int perNode = arguments.ranksPerNode;
  return perNode > 0 && arguments.ranks % perNode == 0 ? "" : "it needs nodes of an equal number of ranks";
}

std::string outOfPlace(const LibraryArguments& arguments) {
  return arguments.inPlace ? "it cannot work in place" : "";
}

std::string nodesOutOfPlace(const LibraryArguments& arguments) {
  const std::string reason = nodes(arguments);
  return reason.empty() ? outOfPlace(arguments) : reason;
}

std::string inPlace(const LibraryArguments& arguments) {
  return arguments.inPlace ? "" : "it works in place only";
}

}  // namespace

const std::vector<LibraryPlan>& libraryPlans() {
  using K = CollectiveKind;
  static const std::vector<LibraryPlan> plans{
      {"all_reduce_ring", "reduce-scatter and all-gather around a ring", K::AllReduce, none, library::ringAllReduce},
      {"all_reduce_one_shot", "everybody sends everything to all", K::AllReduce, none, library::oneShotAllReduce},
      {"all_reduce_two_shot", "each rank sums up its part for all", K::AllReduce, none, library::twoShotAllReduce},
      {"all_reduce_halving_doubling", "recursive halving, then doubling", K::AllReduce, powerOfTwo,
       library::halvingDoublingAllReduce},
      {"all_reduce_tree", "up and down a binomial tree", K::AllReduce, none, library::treeAllReduce},
      {"all_reduce_double_tree", "two binary trees with half of the data each", K::AllReduce, none,
       library::doubleTreeAllReduce},
      {"all_reduce_hierarchical", "within nodes, between nodes, within nodes", K::AllReduce, nodes,
       library::hierarchicalAllReduce},
      {"all_reduce_packets", "two-shot in packets, in MSCCL++'s language", K::AllReduce, none,
       library::packetAllReduce},
      {"all_reduce_switch", "the switch reduces and multicasts", K::AllReduce, inPlace, library::switchAllReduce},
      {"all_gather_ring", "each part around a ring", K::AllGather, none, library::ringAllGather},
      {"all_gather_all_pairs", "each rank sends its part to all", K::AllGather, none, library::allPairsAllGather},
      {"all_gather_doubling", "recursive doubling", K::AllGather, powerOfTwo, library::doublingAllGather},
      {"all_gather_hierarchical", "between nodes, then within nodes", K::AllGather, nodes,
       library::hierarchicalAllGather},
      {"all_gather_pipelined_ring", "a ring in a loop over pieces", K::AllGather, none,
       library::pipelinedRingAllGather},
      {"all_gather_port", "by proxies, to all", K::AllGather, none, library::portAllGather},
      {"reduce_scatter_ring", "around a ring", K::ReduceScatter, none, library::ringReduceScatter},
      {"reduce_scatter_all_pairs", "each rank sums up its part", K::ReduceScatter, none,
       library::allPairsReduceScatter},
      {"broadcast_tree", "down a binomial tree", K::Broadcast, none, library::treeBroadcast},
      {"reduce_tree", "up a binomial tree", K::Reduce, none, library::treeReduce},
      {"all_to_all_all_pairs", "each rank to each", K::AllToAll, outOfPlace, library::allPairsAllToAll},
      {"all_to_all_two_step", "collected within nodes, one message for each rank of other nodes", K::AllToAll,
       nodesOutOfPlace, library::twoStepAllToAll},
      {"all_to_all_three_step", "one message for each pair of nodes", K::AllToAll, nodesOutOfPlace,
       library::threeStepAllToAll},
      {"all_to_next", "each rank to the next one; all ranks of nodes help between nodes", K::Custom, nodesOutOfPlace,
       library::allToNext}};
  return plans;
}

std::string LibraryPlan::refuses(const LibraryArguments& arguments) const {
  const std::string reason = impossible(arguments);
  return reason.empty() ? suits(arguments) : reason;
}

NamedPlan makeLibraryPlan(const std::string& name, const LibraryArguments& arguments) {
  const auto& plans = libraryPlans();
  const auto found =
      std::find_if(plans.begin(), plans.end(), [&](const LibraryPlan& plan) { return name == plan.name; });
  if (found == plans.end())
    reject("there is no plan \"", name, "\" in the library; `mscclpp-plan list` and mscclpp.plans.library() name all");
  const std::string reason = found->refuses(arguments);
  if (!reason.empty()) reject(name, ": ", reason);
  return found->make(arguments);
}

}  // namespace mscclpp::plan
