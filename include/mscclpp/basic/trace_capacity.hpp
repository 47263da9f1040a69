// What a full trace does: the rule by which everything that records counts its free slots and drops what does not fit.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp {

/// The free slots of a bounded buffer of events, for one recorder. Each function returns whether to record the event:
/// - a span is recorded if there are slots for its begin and its end, so no recorded span lacks its end;
/// - what does not fit is dropped and counted, and a span that begins inside a dropped span is dropped too;
/// - nothing that was recorded is overwritten.
/// An end without a begin is dropped and counted as well.
template <class Count>
class TraceCapacity {
 public:
  MSCCLPP_INLINE constexpr explicit TraceCapacity(Count slots) : free_(slots) {}

  MSCCLPP_INLINE constexpr bool begin() {
    if (free_ < 2) {
      ++skipped_;
      return drop();
    }
    free_ -= 2;
    ++depth_;
    return true;
  }
  MSCCLPP_INLINE constexpr bool end() {
    if (skipped_ > 0) {
      --skipped_;  // dropped spans are the innermost ones
      return drop();
    }
    if (depth_ == 0) return drop();
    --depth_;
    return true;
  }
  MSCCLPP_INLINE constexpr bool point() {
    if (free_ < 1) return drop();
    --free_;
    return true;
  }
  /// The buffer has been emptied and has `slots` slots; each open span keeps one for its end. Inside a dropped span it
  /// has no effect, so that dropped spans remain the innermost ones.
  MSCCLPP_INLINE constexpr void refill(Count slots) {
    if (skipped_ == 0) free_ = slots - depth_;
  }

  /// Events that were dropped.
  MSCCLPP_INLINE constexpr Count dropped() const { return dropped_; }

 private:
  MSCCLPP_INLINE constexpr bool drop() {
    ++dropped_;
    return false;
  }

  Count free_;
  Count depth_ = 0;    // recorded spans that have not ended
  Count skipped_ = 0;  // dropped spans that have not ended
  Count dropped_ = 0;
};

}  // namespace mscclpp
