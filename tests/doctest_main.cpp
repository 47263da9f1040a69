// The main function of every CPU test executable.
#define DOCTEST_CONFIG_IMPLEMENT
#include "run_test_cases.hpp"

int main(int argc, char** argv) {
  return mscclpp::test::runCases(argc, argv);
}
