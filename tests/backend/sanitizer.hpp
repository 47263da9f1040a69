// Whether a test runs under ThreadSanitizer, and what it leaves out there.
#pragma once

#include <vector>

#if defined(__SANITIZE_THREAD__)
#define MSCCLPP_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSCCLPP_TEST_TSAN 1
#endif
#endif

namespace mscclpp::test {

/// Whether races are detected in this build.
#if defined(MSCCLPP_TEST_TSAN)
inline constexpr bool detectsRaces = true;
#else
inline constexpr bool detectsRaces = false;
#endif

/// Returns `all`, or `few` of them under ThreadSanitizer: it sees synchronisation, which is the same for many sizes and
/// teams, and is the slowest of all builds. The others have them all.
template <class T = int>
std::vector<T> thinned(std::vector<T> all, std::vector<T> few) {
  return detectsRaces ? few : all;
}

}  // namespace mscclpp::test
