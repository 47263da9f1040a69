// Makes a run without any test case a failure: an executable whose cases the linker dropped must not pass.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace mscclpp::test {

class NoTestsRanListener : public doctest::IReporter {
 public:
  explicit NoTestsRanListener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override { queried() = true; }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override { ran() = stats.numTestCasesPassingFilters; }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  static unsigned& ran() {
    static unsigned count = 0;
    return count;
  }
  static bool& queried() {
    static bool value = false;
    return value;
  }
};

/// Runs the cases that the arguments select.
inline int runCases(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (result == 0 && !NoTestsRanListener::queried() && NoTestsRanListener::ran() == 0) {
    std::fprintf(stderr, "no test case ran: none is linked in, or the filter matches none\n");
    return EXIT_FAILURE;
  }
  return result;
}

}  // namespace mscclpp::test

DOCTEST_REGISTER_LISTENER("no_tests_ran", 1, mscclpp::test::NoTestsRanListener);
