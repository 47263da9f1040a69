// What the ranks tell each other of a call before they set it up.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/plan/plan_call.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/message.hpp"

namespace mscclpp::kernels {

/// Which buffers a call uses, and of what size.
struct CallIdentity {
  std::uint64_t partBytes;  ///< 0: nothing is to be done
  std::uint64_t input;      ///< addresses
  std::uint64_t output;
  std::uint64_t hasData;  ///< of the rank that states it
};

inline CallIdentity identityOf(const PlanCall& call, const plan::Message& message) {
  return {message.partBytes, reinterpret_cast<std::uintptr_t>(call.input),
          reinterpret_cast<std::uintptr_t>(call.output), 1};
}

/// A step that all ranks take before each call of a plan that gives some of them no data: these learn from the others
/// how long the message is, and whether the buffers are new. Throws on all ranks, as requireValid() does, if a call is
/// wrong on one of them, or if sizes differ. rank: as execute() was called.
CallIdentity announceCall(Bootstrap& bootstrap, const ExecutionPlan& plan, const PlanCall& call, int rank);

/// What a rank is about to set up; all ranks must be about to set up the same.
struct SetupRequest {
  std::uint64_t contentHash;
  std::uint64_t partBytes;
  std::uint64_t slotBytes;
  std::uint32_t format;
  std::uint32_t needs;  ///< 1: a context, 2: buffers, 4: code
  std::uint32_t inPlace;
  std::uint32_t code;  ///< the type and the operator of the code
};

/// Called by all ranks before a set-up. Throws Error(InvalidUsage) on all of them if their requests differ, or if a
/// stream is captured on one.
void agreeOnSetup(Bootstrap& bootstrap, const ExecutionPlan& plan, const SetupRequest& request, const Backend& backend,
                  CUstream_st* stream);

}  // namespace mscclpp::kernels
