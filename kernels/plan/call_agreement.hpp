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
/// how long the message is, and whether the buffers are new. rank: with which execute() was called. Throws on all
/// ranks: Error(InvalidUsage) if sizes differ, or this rank's call is wrong, and Error(RemoteError) if another one's
/// is.
CallIdentity announceCall(Bootstrap& bootstrap, const ExecutionPlan& plan, const PlanCall& call, int rank,
                          const RankOf& caller);

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

/// Called by all ranks before a set-up. Throws on all of them: Error(InvalidUsage) if their requests differ, or if
/// this rank's stream is captured, and Error(RemoteError) if another one's is, or if that one calls failSetup().
void agreeOnSetup(Bootstrap& bootstrap, const ExecutionPlan& plan, const SetupRequest& request, const Backend& backend,
                  CUstream_st* stream);

/// Called in a handler, by a rank that other ranks may wait for in agreeOnSetup(), where they learn of the exception
/// that is being handled. Throws it again.
[[noreturn]] void failSetup(Bootstrap& bootstrap, const ExecutionPlan& plan);

}  // namespace mscclpp::kernels
