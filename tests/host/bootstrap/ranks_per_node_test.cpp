// Which ranks count as being on one node. In a separate executable: a process reads its host name once.
#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;

TEST_CASE("ranks with different host names are on different nodes") {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const auto outcomes = test::onProcesses(3, [&](int rank) {
    ::setenv("MSCCLPP_HOSTID", rank == 2 ? "other" : "one", 1);
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(address);
    if (bootstrap.getNranksPerNode() != (rank == 2 ? 1 : 2)) throw std::runtime_error("a wrong count");
  });
  CHECK(outcomes == test::Outcomes(3));
}
