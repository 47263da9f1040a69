#include "mscclpp/host/cuda/numa.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

using namespace mscclpp;

TEST_CASE("binding to an unknown node changes nothing and is logged, and one that does not exist is an error") {
  std::string logged;
  setLogLevel(LogLevel::Info);
  setLogHandler([&](LogLevel, LogSubsystem, const std::string& message) { logged += message; });
  cpu_set_t before;
  cpu_set_t after;
  REQUIRE(::sched_getaffinity(0, sizeof(before), &before) == 0);
  numaBind(-1);
  REQUIRE(::sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(logged.find("NUMA node is unknown") != std::string::npos);
  CHECK_THROWS_AS(numaBind(-2), Error);
  CHECK_THROWS_AS(numaBind(100'000), Error);
  setLogHandler(nullptr);
}
