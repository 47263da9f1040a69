// Wait policies: every wait of the library goes through one, and the default one is bounded, abortable and leaves a record.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/pause.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// What a wait is for: names the parties in the record of a failure.
struct WaitSite {
  WaitOperation operation;
  int rank;                ///< who waits
  int peer;                ///< for whom; -1 if not for one peer
  std::uint32_t block;     ///< block of the waiter
  std::uint64_t expected;  ///< the value waited for
};

/// Waits for ever. For kernels whose caller supervises them in some other way.
struct SpinWait {
  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& /*site*/, Attempt&& attempt) {
    std::uint64_t seen = 0;
    for (unsigned failures = 1; !attempt(seen); ++failures) arch::pauseAfterFailure(failures);
    return true;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilTogether(const Warp& /*warp*/, const WaitSite& site, Attempt&& attempt) {
    return until(site, attempt);
  }
};

/// Makes one attempt: for polling.
struct TryOnce {
  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& /*site*/, Attempt&& attempt) {
    std::uint64_t seen = 0;
    return attempt(seen);
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilTogether(const Warp& /*warp*/, const WaitSite& site, Attempt&& attempt) {
    return until(site, attempt);
  }
};

/// Waits until success, the deadline, or an abort by the host. On failure the first thread of the context writes a WaitRecord, all waits of the context
/// end soon after, and each further wait of this object makes one attempt only: a kernel runs on to its end with meaningless data, and the host throws.
/// A successful wait costs no look at clock or host memory; a long one looks once in arch::attemptsPerDeadlineCheck failures.
class BoundedWait {
 public:
  BoundedWait() = default;
  /// control: host-visible memory of the context; null means no abort and no record. timeout in nanoseconds for each wait; 0 means none.
  MSCCLPP_HOST_DEVICE BoundedWait(WaitControl* control, std::uint64_t timeout)
      : control_(control), timeout_(timeout), ended_(false) {}

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    return untilTogether(ThisThread{}, site, attempt);
  }

  /// The same for the lanes of a warp whose attempts vote: they succeed together, and they give up together.
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilTogether(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    // One place for the attempt: it is inlined, and instructions that a short kernel has to fetch are time.
    std::uint64_t seen = 0;
    std::uint64_t start = 0;
    for (unsigned failures = 0;;) {
      if (attempt(seen)) return true;
      if (ended_) return false;
      arch::pauseAfterFailure(++failures);
      if (failures % arch::attemptsPerDeadlineCheck != 0) continue;
      if (start == 0) start = arch::nanoseconds();
      if (warp.any(mustEnd(control_, timeout_, site, seen, start))) {
        ended_ = true;
        return false;
      }
    }
  }

  /// Whether a wait of this object has failed: what was read since is meaningless.
  MSCCLPP_INLINE bool failed() const { return ended_; }

 private:
  /// Arguments by value: a reference would put the caller's state into memory for the sake of a path that is hardly ever taken.
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE bool mustEnd(WaitControl* control, std::uint64_t timeout, WaitSite site,
                                                           std::uint64_t seen, std::uint64_t start) {
    using namespace arch;
    const std::uint64_t waited = nanoseconds() - start;
    if (control == nullptr) return timeout != 0 && waited >= timeout;
    if (load<Order::Relaxed, Scope::System>(&control->expired) != 0) return true;
    WaitOutcome outcome = WaitOutcome::Pending;
    if (timeout != 0 && waited >= timeout) outcome = WaitOutcome::Deadline;
    if (load<Order::Relaxed, Scope::System>(&control->abort) != 0) outcome = WaitOutcome::Aborted;
    if (outcome == WaitOutcome::Pending) return false;
    WaitRecord& record = control->record;
    if (compareExchange<Order::Relaxed, Scope::Device>(&record.state, 0u, 1u) == 0u) {
      record.outcome = outcome;
      record.operation = site.operation;
      record.rank = site.rank;
      record.peer = site.peer;
      record.block = site.block;
      record.expected = site.expected;
      record.seen = seen;
      record.waitedNanoseconds = waited;
      store<Order::Release, Scope::System>(&record.state, 2u);
    }
    store<Order::Relaxed, Scope::System>(&control->expired, 1u);
    return true;
  }

  WaitControl* control_;
  std::uint64_t timeout_;
  bool ended_;
};

static_assert(WaitPolicy<SpinWait> && WaitPolicy<TryOnce> && WaitPolicy<BoundedWait>);

}  // namespace mscclpp
