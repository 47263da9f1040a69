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

/// Clocks as they were, by number: many signals carry the same. Each has a count of users, and its place serves another
/// one when the last of them has dropped it: most are read once, soon after.
class Snapshots {
 public:
  /// A snapshot with one user.
  constexpr std::int32_t add(const Clock& clock) {
    numbers_ += numbersOf(clock);
    if (free_.empty()) {
      entries_.push_back({clock, 1});
      return static_cast<std::int32_t>(entries_.size()) - 1;
    }
    const std::int32_t number = free_.back();
    free_.pop_back();
    entries_[number] = {clock, 1};
    return number;
  }
  /// One user more. Returns the number.
  constexpr std::int32_t keep(std::int32_t number) {
    ++entries_[number].users;
    return number;
  }
  /// One user less; of -1: nothing.
  constexpr void drop(std::int32_t number) {
    if (number < 0 || --entries_[number].users > 0) return;
    numbers_ -= numbersOf(entries_[number].clock);
    free_.push_back(number);
  }
  /// How many numbers those in use are, in all.
  constexpr std::uint64_t numbers() const { return numbers_; }
  constexpr const Clock& operator[](std::int32_t number) const { return entries_[number].clock; }

 private:
  struct Entry {
    Clock clock;
    std::int32_t users = 0;
  };
  static constexpr std::uint64_t numbersOf(const Clock& clock) { return clock.strong.size() + clock.weak.size(); }

  std::vector<Entry> entries_;
  std::vector<std::int32_t> free_;
  std::uint64_t numbers_ = 0;
};

}  // namespace mscclpp::plan
