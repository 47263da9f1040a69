// CPU implementation of asynchronous stores from shared memory.
//
// They are performed as late as allowed, so that a missing wait shows in tests on CPUs too.
#pragma once

#if !defined(__CUDACC_RTC__)

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace mscclpp::arch::host {

/// The outstanding stores of one CPU thread.
class PendingStores {
 public:
  using Perform = void (*)(void* global, const void* shared, std::uint32_t bytes);

  void add(void* global, const void* shared, std::uint32_t bytes, Perform perform) {
    open_.push_back({global, shared, bytes, perform});
  }
  /// Closes the group of the stores added since the last commit.
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  /// Performs the oldest groups until at most `left` are outstanding.
  void performUntil(std::size_t left) {
    for (; groups_.size() > left; groups_.pop_front()) {
      for (const Store& store : groups_.front()) store.perform(store.global, store.shared, store.bytes);
    }
  }

  static PendingStores& ofThisThread() {
    thread_local PendingStores stores;
    return stores;
  }

 private:
  struct Store {
    void* global;
    const void* shared;
    std::uint32_t bytes;
    Perform perform;
  };
  std::vector<Store> open_;
  std::deque<std::vector<Store>> groups_;
};

}  // namespace mscclpp::arch::host

#endif
