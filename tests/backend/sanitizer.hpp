// Whether a test runs under ThreadSanitizer, and what it leaves out there.
#pragma once

#include <vector>

// MSCCLPP_TEST_TSAN: 1 under ThreadSanitizer, 0 otherwise. g++ has a macro for it, clang a feature.
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

namespace mscclpp::test {

/// Whether races are detected in this build.
inline constexpr bool detectsRaces = MSCCLPP_TEST_TSAN != 0;

/// Returns `all`, or `few` of them under ThreadSanitizer: it sees synchronisation, which is the same for many sizes and
/// teams, and is the slowest of all builds. The others have them all.
template <class T = int>
std::vector<T> thinned(std::vector<T> all, std::vector<T> few) {
  return detectsRaces ? few : all;
}

}  // namespace mscclpp::test
