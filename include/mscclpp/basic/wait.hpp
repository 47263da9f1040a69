// Wait policies. Every wait of the library takes one; the default has a timeout, can be aborted and leaves a record.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/backoff.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// What a wait is for, as the record of a failed wait reports it.
struct WaitSite {
  WaitOperation operation;
  int rank;                ///< the rank that waits
  int peer;                ///< the rank that it waits for; -1: not a single peer
  std::uint32_t block;     ///< block index of the waiting thread
  std::uint64_t expected;  ///< the value that it waits for
};

namespace detail {
/// Whether this rank has left the job. To be called after `anyLeft` has been loaded, with acquire, and was not zero.
MSCCLPP_HOST_DEVICE inline bool hasLeft(const WaitControl& control, int rank) {
  if (rank < 0 || rank >= WaitControl::maxLeftRanks) return false;
  const std::uint32_t word = arch::load<arch::Order::Relaxed, arch::Scope::System>(&control.leftRanks[rank / 32]);
  return ((word >> (rank % 32)) & 1u) != 0;
}
}  // namespace detail

/// Waits without a timeout and cannot be aborted. For kernels that are supervised in another way.
struct SpinWait {
  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& /*site*/, Attempt&& attempt) {
    std::uint64_t seen = 0;
    for (unsigned failures = 1; !attempt(seen); ++failures) arch::backoff(failures);
    return true;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& /*warp*/, const WaitSite& site, Attempt&& attempt) {
    return until(site, attempt);
  }
};

/// Makes one attempt and returns its result: for polling.
struct TryOnce {
  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& /*site*/, Attempt&& attempt) {
    std::uint64_t seen = 0;
    return attempt(seen);
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& /*warp*/, const WaitSite& site, Attempt&& attempt) {
    return until(site, attempt);
  }
};

/// Waits until success, timeout, abort by the host, or until the awaited rank has left the job. The first wait of a
/// context that fails writes a WaitRecord; all other waits of the context fail soon after, and later waits of this
/// object make one attempt only. The kernel then runs to its end with meaningless data, and the host throws. A wait
/// reads the clock and host memory only once in arch::attemptsPerDeadlineCheck failed attempts.
class BoundedWait {
 public:
  BoundedWait() = default;
  /// control: host-visible memory of the context; null: the wait cannot be aborted and leaves no record. timeout:
  /// nanoseconds for each wait; 0: none.
  MSCCLPP_HOST_DEVICE BoundedWait(WaitControl* control, std::uint64_t timeout)
      : control_(control), timeout_(timeout), failed_(false) {}

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    return untilCollective(ThisThread{}, site, attempt);
  }

  /// The same for the lanes of a warp whose attempts vote: they succeed or fail together.
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    // A single call of the attempt, which is inlined: a short kernel spends time on fetching instructions.
    std::uint64_t seen = 0;
    std::uint64_t start = 0;
    for (unsigned failures = 0;;) {
      if (attempt(seen)) return true;
      if (failed_) return false;
      arch::backoff(++failures);
      if (failures % arch::attemptsPerDeadlineCheck != 0) continue;
      if (start == 0) start = arch::nanoseconds() & ~peerLeftBit;
      const Verdict verdict = checkDeadline(control_, timeout_, site, seen, start);
      if (warp.any(verdict == Verdict::Fail)) {
        failed_ = true;
        return false;
      }
      // What the peer wrote before it left may have arrived since the last attempt: more attempts come before a
      // failure.
      if (verdict == Verdict::PeerLeft) start |= peerLeftBit;
    }
  }

  /// Fails without waiting, because of a wrong use: as after a wait that ended with this outcome.
  MSCCLPP_HOST_DEVICE void fail(const WaitSite& site, WaitOutcome outcome, std::uint64_t seen) {
    failed_ = true;
    if (control_ != nullptr) leaveRecord(control_, outcome, site, seen, 0);
  }

  /// Whether a wait of this object has failed; what was read since then is meaningless.
  MSCCLPP_INLINE bool failed() const { return failed_; }

 private:
  enum class Verdict : std::uint32_t { Continue, PeerLeft, Fail };
  /// Set in the start time of a wait once a check has seen that the peer has left.
  static constexpr std::uint64_t peerLeftBit = 1;

  /// Whether the awaited rank has left or, for a collective's wait for packets of all ranks, whether any rank has.
  /// False for waits that do not depend on a peer: for blocks, FIFOs and hardware barriers.
  static MSCCLPP_HOST_DEVICE bool awaitsDeparted(WaitControl* control, const WaitSite& site) {
    using namespace arch;
    if (load<Order::Acquire, Scope::System>(&control->anyLeft) == 0) return false;
    // The ranks of these are ranks of the job, those of a collective ranks of its team.
    const bool namesRankOfJob = site.operation == WaitOperation::Semaphore || site.operation == WaitOperation::User ||
                                site.operation == WaitOperation::PlanSignal ||
                                site.operation == WaitOperation::PlanPacket;
    const bool isForPeer = namesRankOfJob || site.operation == WaitOperation::Packet ||
                           site.operation == WaitOperation::TeamBarrier || site.operation == WaitOperation::Progress ||
                           site.operation == WaitOperation::Call;
    const bool isOfJob = namesRankOfJob || load<Order::Relaxed, Scope::System>(&control->teamIsJob) != 0;
    if (!isForPeer || !isOfJob || site.rank < 0) return false;
    if (site.peer < 0) return site.operation == WaitOperation::Packet || site.operation == WaitOperation::PlanPacket;
    return detail::hasLeft(*control, site.peer);
  }

  static MSCCLPP_INLINE void leaveRecord(WaitControl* control, WaitOutcome outcome, const WaitSite& site,
                                         std::uint64_t seen, std::uint64_t waited) {
    using namespace arch;
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
  }

  /// Takes its arguments by value: references would force the caller's state from registers into memory, for a path
  /// that is rarely taken.
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE Verdict checkDeadline(WaitControl* control, std::uint64_t timeout,
                                                                    WaitSite site, std::uint64_t seen,
                                                                    std::uint64_t start) {
    using namespace arch;
    const std::uint64_t waited = nanoseconds() - (start & ~peerLeftBit);
    const bool timedOut = timeout != 0 && waited >= timeout;
    if (control == nullptr) return timedOut ? Verdict::Fail : Verdict::Continue;
    if (load<Order::Relaxed, Scope::System>(&control->expired) != 0) return Verdict::Fail;
    WaitOutcome outcome = WaitOutcome::Pending;
    if (load<Order::Relaxed, Scope::System>(&control->abort) != 0) {
      outcome = WaitOutcome::Aborted;
    } else if (timedOut) {
      outcome = WaitOutcome::Deadline;
    } else if (awaitsDeparted(control, site)) {
      if ((start & peerLeftBit) == 0) return Verdict::PeerLeft;
      outcome = WaitOutcome::PeerLeft;
    }
    if (outcome == WaitOutcome::Pending) return Verdict::Continue;
    leaveRecord(control, outcome, site, seen, waited);
    return Verdict::Fail;
  }

  WaitControl* control_;
  std::uint64_t timeout_;
  bool failed_;
};

static_assert(WaitPolicy<SpinWait> && WaitPolicy<TryOnce> && WaitPolicy<BoundedWait>);

/// Whether the policy returns from a failed wait.
template <WaitPolicy Wait>
inline constexpr bool returnsFailures = requires(const Wait& wait) {
  wait.failed();
};

/// Whether a wait of this object has failed. Never with a policy that does not return from a failed wait.
template <WaitPolicy Wait>
MSCCLPP_INLINE bool hasFailed(const Wait& wait) {
  if constexpr (returnsFailures<Wait>) {
    return wait.failed();
  } else {
    return false;
  }
}

}  // namespace mscclpp
