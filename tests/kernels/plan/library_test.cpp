// Each plan of the library is proven for several numbers of ranks, protocols, instances, in place and not.
#include "mscclpp/kernels/plan/library.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/check.hpp"

namespace mscclpp::plan {
namespace {

TEST_CASE("every plan of the library is proven") {
  int proven = 0;
  for (const LibraryPlan& plan : libraryPlans()) {
    int ofPlan = 0;
    for (const std::pair<int, int>& job : {std::pair{2, 0}, {3, 0}, {4, 2}, {6, 3}}) {
      const int ranks = job.first, perNode = job.second;
      for (const auto protocol : {msccl::Protocol::Simple, msccl::Protocol::LL}) {
        for (const bool inPlace : {false, true}) {
          for (const int instances : {1, 2}) {
            if (instances == 2 && ranks == 6) continue;
            const LibraryArguments arguments{ranks, perNode, instances, protocol, inPlace};
            const std::string reason = plan.refuses(arguments);
            if (!reason.empty()) continue;
            std::string message;
            try {
              verified(makeLibraryPlan(plan.name, arguments));
            } catch (const Error& error) {
              message = error.what();
            }
            CHECK_MESSAGE(message == "", std::string(plan.name), ": ranks ", ranks, ", instances ", instances,
                          ", in place ", inPlace, ", protocol ", static_cast<int>(protocol));
            ++ofPlan;
          }
        }
      }
    }
    CHECK_MESSAGE(ofPlan > 0, std::string(plan.name));
    proven += ofPlan;
  }
  CHECK(proven > 250);
}

TEST_CASE("calls with other numbers of iterations may follow each other in every plan with a loop") {
  int loops = 0;
  for (const LibraryPlan& plan : libraryPlans()) {
    for (const int ranks : {2, 4}) {
      for (const bool inPlace : {false, true}) {
        const LibraryArguments arguments{ranks, 0, 2, msccl::Protocol::Simple, inPlace};
        if (!plan.refuses(arguments).empty()) continue;
        const NamedPlan made = verified(makeLibraryPlan(plan.name, arguments));
        const bool hasLoop =
            std::any_of(made.operations.begin(), made.operations.end(),
                        [](const Operation& operation) { return operation.kind == OperationKind::LoopBegin; });
        if (!hasLoop) continue;
        ++loops;
        CHECK_MESSAGE(checkMixedIterations(made).kind == FaultKind::None, std::string(plan.name), ": ranks ", ranks);
      }
    }
  }
  CHECK(loops > 0);
}

TEST_CASE("arguments that do not suit are refused") {
  const auto messageOf = [](const char* name, const LibraryArguments& arguments) -> std::string {
    try {
      makeLibraryPlan(name, arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(messageOf("all_reduce_star", {.ranks = 2}).find("there is no plan \"all_reduce_star\"") != std::string::npos);
  CHECK(messageOf("all_reduce_ring", {.ranks = 1}).find("at least two ranks") != std::string::npos);
  CHECK(messageOf("all_reduce_ring", {.ranks = 10000}).find("at most 4096 ranks") != std::string::npos);
  CHECK(messageOf("all_reduce_two_shot", {.ranks = 512}).find("more than 262144 operations") != std::string::npos);
  CHECK(messageOf("all_reduce_ring", {.ranks = 4, .ranksPerNode = 5}).find("there are 4 in all") != std::string::npos);
  CHECK(messageOf("all_reduce_ring", {.ranks = 4, .ranksPerNode = -1}).find("-1 ranks per node") != std::string::npos);
  CHECK(messageOf("all_reduce_ring", {.ranks = 2, .instances = 0}).starts_with("all_reduce_ring: instances is 0;"));
  CHECK(messageOf("all_reduce_packets", {.ranks = 2, .instances = 1000}).find("it is 1 to 128") != std::string::npos);
  CHECK(messageOf("all_gather_doubling", {.ranks = 3}).find("power of two") != std::string::npos);
  CHECK(messageOf("all_reduce_hierarchical", {.ranks = 4}).find("needs nodes") != std::string::npos);
  CHECK(messageOf("all_to_all_all_pairs", {.ranks = 2, .inPlace = true}).find("in place") != std::string::npos);
}

}  // namespace
}  // namespace mscclpp::plan
