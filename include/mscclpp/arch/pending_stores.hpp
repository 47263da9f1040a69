// CPU implementation of asynchronous copies between shared and global memory.
//
// They are performed as late as allowed, so that a missing wait shows in tests on CPUs too.
#pragma once

#if !defined(__CUDACC_RTC__)

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace mscclpp::arch::host {

/// The outstanding stores, or copies to shared memory, of one CPU thread.
class PendingStores {
 public:
  using Perform = void (*)(void* to, const void* from, std::uint32_t bytes);

  void add(void* to, const void* from, std::uint32_t bytes, Perform perform) {
    open_.push_back({to, from, bytes, perform});
  }
  /// Closes the group of the stores added since the last commit.
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  /// Performs the oldest groups until at most `left` are outstanding.
  void performUntil(std::size_t left) {
    for (; groups_.size() > left; groups_.pop_front()) {
      for (const Store& store : groups_.front()) store.perform(store.to, store.from, store.bytes);
    }
  }

  /// Those to global memory (arch/bulk.hpp).
  static PendingStores& ofThisThread() {
    thread_local PendingStores stores;
    return stores;
  }
  /// Those to shared memory (arch/async_copy.hpp), whose groups are counted by themselves.
  static PendingStores& copiesOfThisThread() {
    thread_local PendingStores copies;
    return copies;
  }

 private:
  struct Store {
    void* to;
    const void* from;
    std::uint32_t bytes;
    Perform perform;
  };
  std::vector<Store> open_;
  std::deque<std::vector<Store>> groups_;
};

}  // namespace mscclpp::arch::host

#endif
