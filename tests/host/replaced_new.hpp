// Replaces operator new: allocations fail in the threads that the library has started, and the largest is recorded. For
// one source of a test program.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

/// Whether it does. Not under ThreadSanitizer: that of clang has operators of its own, which cannot be replaced. Cases
/// that need it are marked doctest::skip(!replacesNew).
inline constexpr bool replacesNew = !detectsRaces;

inline std::atomic<bool> allocationsFail = false;
/// The size of the largest allocation, failed ones included.
inline std::atomic<std::size_t> largestAllocation = 0;

/// During its lifetime, operator new throws in every thread but the first.
class FailingAllocations {
 public:
  FailingAllocations() { allocationsFail = true; }
  ~FailingAllocations() { allocationsFail = false; }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};

}  // namespace mscclpp::test

#if !MSCCLPP_TEST_TSAN
// Not inlined: the compiler would see malloc and free, and warn that they match no operator.
[[gnu::noinline]] void* operator new(std::size_t size) {
  std::size_t largest = mscclpp::test::largestAllocation;
  while (size > largest && !mscclpp::test::largestAllocation.compare_exchange_weak(largest, size)) {
  }
  const bool fails = mscclpp::test::allocationsFail && ::syscall(SYS_gettid) != ::getpid();
  void* const memory = fails ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
