// The fastest algorithm for each size, as a file by which Collectives selects (MSCCLPP_TUNING_FILE).
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// Collects the times of one collective.
class TuningTable {
 public:
  struct Choice {
    std::size_t maxBytes;  ///< 0: any
    std::string algorithm;
  };

  /// bytes: of CollectiveCall::count elements. needsRegistration: of its output. isUnlimited: it takes messages of any
  /// size.
  void add(std::size_t bytes, const std::string& algorithm, bool needsRegistration, bool isUnlimited,
           double microseconds);

  /// The choices by growing size. An algorithm is kept for the next size unless another one is faster by more than 2%:
  /// tables without alternation due to noise. One that needs registration comes before the choice without it. The last
  /// ones are for all longer messages too, if they take them.
  std::vector<Choice> choices() const;

  /// Throws Error(InvalidUsage) if there is a file and it is not one that choices can be put into.
  static void requireUsable(const std::string& path);

  /// Puts the choices into a file, which may have tables of other collectives, devices and numbers of ranks, in place
  /// of those for the same. Throws Error(InvalidUsage) if the file is there and no such file, SysError if it cannot be
  /// written.
  void writeTo(const std::string& path, const std::string& deviceName, int ranks, CollectiveType collective) const;

 private:
  struct Times {
    std::map<std::string, double> plain;
    std::map<std::string, double> registered;
  };
  std::map<std::size_t, Times> sizes_;
  std::set<std::string> unlimited_;
};

}  // namespace mscclpp::kernels
