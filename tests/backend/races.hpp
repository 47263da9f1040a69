// Counts the reports of ThreadSanitizer, for mutants that must race. Included by one source of an executable; the other
// cases must have no races.
#pragma once

#include <atomic>

#include "sanitizer.hpp"

namespace mscclpp::test {

inline std::atomic<int> raceReports = 0;

/// The number of races detected in a run.
template <class Run>
int countRaces(const Run& run) {
  const int before = raceReports;
  run();
  return raceReports - before;
}

}  // namespace mscclpp::test

#if MSCCLPP_TEST_TSAN
// ThreadSanitizer calls the first for each race; the second keeps expected races from failing the test.
extern "C" void __tsan_on_report(void*) {
  ++mscclpp::test::raceReports;
}
extern "C" const char* __tsan_default_options() {
  return "exitcode=0 suppress_equal_stacks=0 suppress_equal_addresses=0";
}
#endif
