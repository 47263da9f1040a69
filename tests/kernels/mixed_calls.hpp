// Random calls of all compiled collectives and algorithms in a row: the same row on every rank.
#pragma once

#include <cstdlib>
#include <random>
#include <vector>

#include "every_collective.hpp"

namespace mscclpp::test {

/// The number of calls of a soak test: MSCCLPP_SOAK_CALLS, or else `calls`.
inline std::uint64_t soakCalls(std::uint64_t calls) {
  const char* value = std::getenv("MSCCLPP_SOAK_CALLS");
  return value == nullptr || *value == '\0' ? calls : std::strtoull(value, nullptr, 10);
}

/// Draws calls: collective, algorithm, element type, operator, root, direction, place and alignment.
class MixedCalls {
 public:
  MixedCalls(const Collectives& collectives, int ranks, std::vector<DataType> types, unsigned seed)
      : collectives_(collectives), ranks_(ranks), types_(std::move(types)), random_(seed) {}

  std::size_t below(std::size_t limit) { return random_() % limit; }

  /// A call of any collective: of no element, of few, mostly of up to 600, and sometimes of up to `longest`.
  CheckedCall next(std::size_t longest) {
    const std::size_t kind = below(16);
    const std::size_t limit = kind == 0 ? 1 : kind < 4 ? 20 : kind < 15 ? 600 : longest;
    return next(everyCollective[below(everyCollective.size())], below(std::min(limit, longest + 1)));
  }
  /// A call of this collective and count.
  CheckedCall next(CollectiveType collective, std::size_t count) {
    CheckedCall checked;
    CollectiveCall& call = checked.call;
    call.collective = collective;
    call.count = count;
    call.type = types_[below(types_.size())];
    call.reduction = operators[below(operators.size())];
    call.root = static_cast<int>(below(static_cast<std::size_t>(ranks_)));
    if (collective == CollectiveType::SendReceive) call.destination = call.origin = 0, call.receivedCount = count;
    const auto names = algorithmsFor(collectives_, call);
    call.algorithm = names[below(names.size())];
    checked.where = below(2) == 0 ? Output::InPlace : Output::OtherBuffer;
    checked.shift = below(3);
    checked.seed = static_cast<unsigned>(random_());
    checked.hops = static_cast<int>(below(static_cast<std::size_t>(ranks_)));
    if (below(2) == 0) checked.sender = static_cast<int>(below(static_cast<std::size_t>(ranks_)));
    return checked;
  }

 private:
  const Collectives& collectives_;
  int ranks_;
  std::vector<DataType> types_;
  std::mt19937_64 random_;
};

}  // namespace mscclpp::test
