// Kernels compiled for single plans, instead of the interpreter.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/jit/program.hpp"
#include "mscclpp/kernels/executor.hpp"
#include "mscclpp/plan/execution.hpp"
#include "mscclpp/plan/rank_program.hpp"

namespace mscclpp::kernels {

class CompiledPlans {
 public:
  /// What a kernel is for.
  struct Key {
    std::uint64_t contentHash;  ///< of the plan
    plan::PacketFormat format;
    DataType type;
    ReduceOp op;

    auto operator<=>(const Key&) const = default;
  };

  /// Whether compile() has decided whether there is a kernel.
  bool isDecided(const Key& key) const { return kernels_.contains(key); }
  /// Null: the plan is interpreted.
  const jit::Kernel* find(const Key& key) const;
  /// Whether there is a kernel of a plan, of whatever format and type.
  bool hasKernelOf(std::uint64_t contentHash) const;

  /// Compiles the kernel of a plan, for a key that is not decided. If a rank cannot, which is logged, the plan is
  /// interpreted by all. Collective.
  void compile(Bootstrap& bootstrap, const ExecutionPlan& plan, const plan::RankProgram& program, const Key& key);

 private:
  std::map<Key, std::optional<jit::Kernel>> kernels_;
};

}  // namespace mscclpp::kernels
