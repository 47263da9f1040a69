// Proofs that are kept: a plan that was proven once need not be proven again by each process that executes it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/jit/content_hash.hpp"
#include "kernels/jit/program_cache.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// A digest of the checker's source: proofs of another one do not count. Written by checker_version.py.
std::string_view checkerVersion();

/// A digest of all of a plan but its names: equal for equal plans only.
jit::detail::ContentHash::Digest digestOf(const Plan& plan);

/// The name under which the proof of a plan is kept: of this checker.
std::string proofKeyOf(const Plan& plan);

/// The name under which it is kept whether numbers of iterations may change: of this checker.
std::string mixedIterationsKeyOf(const Plan& plan);

/// The proofs in a folder, which processes share. A proof is a file: Operation::position and Operation::completes of a
/// plan, under the digest of the plan and of the checker; another file says whether numbers of iterations may change. A
/// file that is damaged, or of another plan or checker, counts as none.
class Proofs {
 public:
  explicit Proofs(std::filesystem::path folder) : cache_(std::move(folder)) {}
  /// Those of folder plans/ of MSCCLPP_CACHE_DIR.
  static Proofs ofUser();

  /// As plan::verified() (kernels/plan/verify.hpp) and setCompletions(), but a plan of which there is a proof is not
  /// checked again.
  NamedPlan verified(NamedPlan plan) const;

  /// Whether calls of a proven plan whose loops run for different numbers of iterations may follow each other with the
  /// same scratch: what checkMixedIterations() finds within a limit, about a second. Either answer is kept.
  bool allowMixedIterations(const Plan& plan) const;

 private:
  /// read(image): whether it can use what was kept; prove(): what to keep.
  template <class Read, class Prove>
  void findOrProve(const std::string& key, const Read& read, const Prove& prove) const;

  jit::detail::ProgramCache cache_;
};

}  // namespace mscclpp::plan
