// Counts the reports of ThreadSanitizer, for mutants that must race. Included by one source of an executable; the other
// cases must have no races.
#pragma once

#include "sanitizer.hpp"

namespace mscclpp::test {

inline volatile int raceReports = 0;

/// The number of races detected in a run.
template <class Run>
int countRaces(const Run& run) {
  const int before = raceReports;
  run();
  return raceReports - before;
}

}  // namespace mscclpp::test

#if MSCCLPP_TEST_TSAN
// ThreadSanitizer calls the first for each race; the second keeps expected races from failing the test. The first is
// called by one thread at a time, with locks held that instrumented code may wait for: so it is not instrumented, which
// an atomic would be all the same.
extern "C" __attribute__((no_sanitize("thread"))) void __tsan_on_report(void*) {
  mscclpp::test::raceReports = mscclpp::test::raceReports + 1;
}
extern "C" const char* __tsan_default_options() {
  return "exitcode=0 suppress_equal_stacks=0 suppress_equal_addresses=0";
}
#endif
