#include "compiled_plans.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "plan_source.hpp"

namespace mscclpp::kernels {

const jit::Kernel* CompiledPlans::find(const Key& key) const {
  const auto known = kernels_.find(key);
  return known != kernels_.end() && known->second ? &*known->second : nullptr;
}

bool CompiledPlans::hasKernelOf(std::uint64_t contentHash) const {
  return std::ranges::any_of(
      kernels_, [&](const auto& each) { return each.first.contentHash == contentHash && each.second.has_value(); });
}

void CompiledPlans::compile(Bootstrap& bootstrap, const ExecutionPlan& plan, const plan::RankProgram& program,
                            const Key& key) {
  std::optional<jit::Kernel> kernel;
  const mscclpp::detail::GroupAgreement agreement(bootstrap, "Executor");
  const auto hasKernel = agreement.gather("compile the plan \"" + plan.name() + "\"", [&] {
    try {
      const int transfers = transfersOf(program);
      if (transfers > mostCompiledTransfers) {
        throw Error("its blocks have " + std::to_string(transfers) + " different transfers, of which at most " +
                        std::to_string(mostCompiledTransfers) + " are compiled",
                    ErrorCode::InvalidUsage);
      }
      const std::string source =
          sourceOf(program, {key.type, key.op, key.format, plan.plan().chunksPerPart, mostPlanThreads});
      kernel = jit::compile({.source = source, .name = "plan.cu", .kernels = {planKernelName}}).kernel();
    } catch (const BaseError& error) {
      logMessage(LogLevel::Warn, LogSubsystem::Exec, "plan ", plan.name(), " is interpreted: ", error.what());
    }
    return static_cast<char>(kernel ? 1 : 0);
  });
  if (!std::ranges::all_of(hasKernel, [](char ofRank) { return ofRank != 0; })) kernel.reset();
  kernels_.emplace(key, std::move(kernel));
}

}  // namespace mscclpp::kernels
