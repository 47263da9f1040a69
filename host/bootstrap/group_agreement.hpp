// Steps that ranks take together: each reports whether its own succeeded, and no rank continues unless all did.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

/// The agreement protocol of all group operations. After a successful step, a call that blocks until every rank has
/// made it is safe.
class GroupAgreement {
 public:
  /// `ranks` of the bootstrap, which must outlive this. `errorPrefix` begins the message of every error. Throws
  /// Error(InvalidUsage) unless `ranks` are distinct ranks of the bootstrap that include the caller.
  GroupAgreement(Bootstrap& bootstrap, std::vector<int> ranks, std::string errorPrefix);
  /// All ranks of the bootstrap.
  GroupAgreement(Bootstrap& bootstrap, std::string errorPrefix);

  /// In ascending order.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// The index of this rank in `ranks`; the first is the root.
  int groupRank() const noexcept { return groupRank_; }

  /// Collective. Runs `body`, and sends its result, or its error, to the other members. If all succeeded, returns all
  /// results, in the order of ranks(). If any failed, throws: on that rank what its body threw, on the others
  /// Error(RemoteError) with the first such rank, the step and the reason. Also throws what the bootstrap throws for a
  /// rank that does not arrive, with the step prepended to the message of an Error, and Error(InvalidUsage) if one is
  /// at another step. `step` completes the sentence "rank 3 failed to ...".
  std::vector<std::vector<char>> runStep(const std::string& step, const std::function<std::vector<char>()>& body) const;

  /// The same with results of a trivially copyable type, which all ranks have from the same version of the library.
  /// Also throws Error(InvalidUsage) for a result of another size.
  template <class Body, class T = std::invoke_result_t<Body>>
  std::vector<T> gather(const std::string& step, const Body& body) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto results = runStep(step, [&] {
      const T own = body();
      std::vector<char> bytes(sizeof(T));
      std::memcpy(bytes.data(), &own, sizeof(T));
      return bytes;
    });
    std::vector<T> values(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      requireSize(i, results[i], sizeof(T));
      std::memcpy(&values[i], results[i].data(), sizeof(T));
    }
    return values;
  }

 private:
  struct StepResult;

  /// Of the result of the member with this index.
  void requireSize(std::size_t index, const std::vector<char>& result, std::size_t bytes) const;

  /// Returns the results of all ranks, in their order.
  std::vector<StepResult> exchange(StepResult own) const;

  Bootstrap& bootstrap_;
  std::vector<int> ranks_;
  std::string errorPrefix_;
  int groupRank_;
};

}  // namespace mscclpp::detail
