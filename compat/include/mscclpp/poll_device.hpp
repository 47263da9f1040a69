// MSCCL++'s polling loops: wait while a condition holds. Bounded in every build (basic/trapping_wait.hpp).
#pragma once

#include "mscclpp/assert_device.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/device.hpp"

/// Loops while `cond` holds. A negative `maxSpinCount` means no limit; otherwise the kernel traps after
/// TrappingWait::limit.
#define POLL_MAYBE_JAILBREAK(cond, maxSpinCount)                                                \
  do {                                                                                          \
    ::mscclpp::TrappingWait mscclppPollWait(maxSpinCount);                                      \
    mscclppPollWait.until(::mscclpp::WaitSite{::mscclpp::WaitOperation::Unknown, -1, -1, 0, 0}, \
                          [&](std::uint64_t&) { return !(cond); });                             \
  } while (false)

/// Loops while either condition holds.
#define OR_POLL_MAYBE_JAILBREAK(cond1, cond2, maxSpinCount) POLL_MAYBE_JAILBREAK(((cond1) || (cond2)), maxSpinCount)
