// Steps that the ranks of a group take together: each says how it went, and nobody goes on unless all have come and succeeded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp::detail {

/// What makes a call that blocks until every rank has made it, or fails where one did not, safe to make.
class GroupAgreement {
 public:
  /// `what` begins the text of every error. Throws Error(InvalidUsage) unless `ranks` are different ranks of the
  /// bootstrap, the caller among them.
  GroupAgreement(std::shared_ptr<Bootstrap> bootstrap, std::vector<int> ranks, std::string what);

  /// In ascending order.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// Of this rank among `ranks`; the first is the root.
  int position() const noexcept { return position_; }

  /// Runs `body`, and tells the other members its result or why it failed. Returns the results of all, by position.
  /// Throws if any failed: on the rank itself what its body threw, on the others Error(RemoteError) which names the
  /// first such rank, the step and the reason. Also throws what the bootstrap throws for a rank that does not come, and
  /// Error(InvalidUsage) for one that is at another step.
  std::vector<std::vector<char>> take(const std::string& step, const std::function<std::vector<char>()>& body) const;

 private:
  std::shared_ptr<Bootstrap> bootstrap_;
  std::vector<int> ranks_;
  std::string what_;
  int position_;
};

}  // namespace mscclpp::detail
