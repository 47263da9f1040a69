#include "call_agreement.hpp"

#include <cstring>
#include <string>

#include "host/bootstrap/group_agreement.hpp"

namespace mscclpp::kernels {

namespace {

/// What of a request of another rank is not this rank's.
std::string differenceOf(const SetupRequest& other, const SetupRequest& own) {
  if (other.contentHash != own.contentHash) return "another plan";
  if (other.partBytes != own.partBytes) {
    return "messages with parts of " + std::to_string(other.partBytes) + " bytes, and this rank of " +
           std::to_string(own.partBytes);
  }
  if (other.inPlace != own.inPlace) return other.inPlace != 0 ? "calls in place" : "calls that are not in place";
  if (other.format != own.format) return "packets of another format";
  if (other.code != own.code) return "another type of elements or operator";
  return "calls with other new buffers, or another new stream";
}

std::string setupStep(const ExecutionPlan& plan) {
  return "set up the plan \"" + plan.name() + "\"";
}

}  // namespace

CallIdentity announceCall(Bootstrap& bootstrap, const ExecutionPlan& plan, const PlanCall& call, int rank,
                          const RankOf& caller) {
  const mscclpp::detail::GroupAgreement agreement(bootstrap, "Executor");
  CallIdentity own{};
  const auto all = agreement.gather("call the plan \"" + plan.name() + "\"", [&] {
    const bool isOwn = hasData(plan.plan(), caller.rank);
    PlanCall copy = call;
    if (!isOwn || !isEmpty(call)) own = identityOf(call, fitToPlan(plan, copy, rank, caller));
    own.hasData = isOwn ? 1 : 0;
    return own;
  });
  int first = -1;  // of the ranks with data
  CallIdentity stated{};
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].hasData == 0) continue;
    if (first < 0) {
      first = static_cast<int>(r);
      stated = all[r];
    }
    if (all[r].partBytes != stated.partBytes) {
      throwInvalidPlanCall(plan, "rank " + std::to_string(first) + " calls it with chunks of " +
                                     std::to_string(stated.partBytes) + " bytes, and rank " + std::to_string(r) +
                                     " with chunks of " + std::to_string(all[r].partBytes) +
                                     ": all ranks must pass messages of the same size");
    }
  }
  return own.hasData != 0 ? own : stated;
}

void agreeOnSetup(Bootstrap& bootstrap, const ExecutionPlan& plan, const SetupRequest& request, const Backend& backend,
                  CUstream_st* stream) {
  const mscclpp::detail::GroupAgreement agreement(bootstrap, "Executor");
  const auto all = agreement.gather(setupStep(plan), [&] {
    if (backend.isCapturing(stream)) {
      throwInvalidPlanCall(plan,
                           "a call of this size, with these buffers and this stream, has to set up memory, which a "
                           "graph cannot capture: execute it once on all ranks before the capture");
    }
    return request;
  });
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (std::memcmp(&all[r], &request, sizeof(request)) == 0) continue;
    throwInvalidPlanCall(plan, "rank " + std::to_string(r) + " and rank " + std::to_string(bootstrap.getRank()) +
                                   " set up different calls: rank " + std::to_string(r) + " has " +
                                   differenceOf(all[r], request) +
                                   ". All ranks must execute the same plan, with messages of the same size, in place "
                                   "or not, and use a new stream or new buffers in the same call");
  }
}

void failSetup(Bootstrap& bootstrap, const ExecutionPlan& plan) {
  const mscclpp::detail::GroupAgreement agreement(bootstrap, "Executor");
  agreement.gather(setupStep(plan), []() -> SetupRequest { throw; });
  throw;
}

}  // namespace mscclpp::kernels
