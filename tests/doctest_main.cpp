// The main function of every CPU test executable.
#define DOCTEST_CONFIG_IMPLEMENT
#include "empty_run.hpp"

int main(int argc, char** argv) {
  return mscclpp::tests::runCases(argc, argv);
}
