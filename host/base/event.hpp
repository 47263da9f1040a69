// A flag that is set once, and wakes the threads that wait for it in poll(2).
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

class Event {
 public:
  /// Throws SysError if the process is out of descriptors.
  Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!descriptor_) throw SysError("eventfd", errno);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Any thread may call it, any number of times.
  void set() noexcept {
    if (isSet_.exchange(true, std::memory_order_acq_rel)) return;
    // A forked child has a flag of its own, but shares the descriptor: it must not wake its parent.
    if (!owner_.isCurrent()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof(one));
  }

  bool isSet() const noexcept { return isSet_.load(std::memory_order_acquire); }
  /// Readable once the event is set; not to be read from.
  int descriptor() const noexcept { return descriptor_.get(); }

 private:
  const OwnerProcess owner_;
  UniqueFd descriptor_;
  std::atomic<bool> isSet_ = false;
};

}  // namespace mscclpp::detail
