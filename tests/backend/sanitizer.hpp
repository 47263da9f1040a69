// Whether a test runs under ThreadSanitizer or AddressSanitizer, and what it leaves out there.
#pragma once

#include <vector>

// MSCCLPP_TEST_TSAN, MSCCLPP_TEST_ASAN: 1 under ThreadSanitizer or AddressSanitizer, 0 otherwise. g++ has macros for
// them, clang features.
#if defined(__has_feature)
#define MSCCLPP_TEST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define MSCCLPP_TEST_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || MSCCLPP_TEST_HAS_FEATURE(thread_sanitizer)
#define MSCCLPP_TEST_TSAN 1
#else
#define MSCCLPP_TEST_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || MSCCLPP_TEST_HAS_FEATURE(address_sanitizer)
#define MSCCLPP_TEST_ASAN 1
#else
#define MSCCLPP_TEST_ASAN 0
#endif

namespace mscclpp::test {

/// Whether races are detected in this build.
inline constexpr bool detectsRaces = MSCCLPP_TEST_TSAN != 0;

/// Whether a child that was forked beside other threads can allocate memory: in AddressSanitizer's allocator it would
/// wait for a lock that one of them held.
inline constexpr bool allocatesInForks = MSCCLPP_TEST_ASAN == 0;

/// Returns `all`, or `few` of them under ThreadSanitizer: it sees synchronisation, which is the same for many sizes and
/// teams, and is the slowest of all builds. The others have them all.
template <class T = int>
std::vector<T> thinned(std::vector<T> all, std::vector<T> few) {
  return detectsRaces ? few : all;
}

}  // namespace mscclpp::test
