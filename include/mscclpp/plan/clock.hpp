// Vector clocks: what an actor of a simulated plan knows to have happened.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mscclpp::plan {

/// For each actor (a block, a port channel's proxy, a caller), up to which of its intervals everything is ordered
/// before the owner of the clock. An interval is what lies between two Syncs of a block. Two orders:
///  - strong: by release and acquire. Writes before are visible.
///  - weak: also by packets and relaxed signals. What was before has been executed: its reads are complete, but its
///    writes need not be visible.
struct Clock {
  std::vector<std::int32_t> strong;
  std::vector<std::int32_t> weak;

  constexpr Clock() = default;
  constexpr explicit Clock(std::int32_t actors) : strong(actors, 0), weak(actors, 0) {}

  constexpr std::size_t size() const { return weak.size(); }
  constexpr void mergeWeak(const Clock& other) { raise(weak, other.weak); }
  constexpr void merge(const Clock& other) {
    raise(strong, other.strong);
    raise(weak, other.weak);
  }
  constexpr void enter(std::int32_t actor, std::int32_t interval) {
    strong[actor] = std::max(strong[actor], interval);
    weak[actor] = std::max(weak[actor], interval);
  }

  static constexpr void raise(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
    for (std::size_t i = 0; i < to.size(); ++i)
      if (from[i] > to[i]) to[i] = from[i];
  }
};

/// Clocks as they were, by number: many signals carry the same.
class Snapshots {
 public:
  constexpr std::int32_t add(const Clock& clock) {
    numbers_ += clock.strong.size() + clock.weak.size();
    clocks_.push_back(clock);
    return static_cast<std::int32_t>(clocks_.size()) - 1;
  }
  /// How many numbers they are, in all.
  constexpr std::uint64_t numbers() const { return numbers_; }
  constexpr const Clock& operator[](std::int32_t number) const { return clocks_[number]; }

 private:
  std::vector<Clock> clocks_;
  std::uint64_t numbers_ = 0;
};

}  // namespace mscclpp::plan
