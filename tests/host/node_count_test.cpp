// Which ranks count as neighbours on one node. In an executable of its own: a process learns its host once.
#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "mscclpp/host/bootstrap.hpp"
#include "ranks.hpp"

using namespace mscclpp;

TEST_CASE("ranks with different host names are counted apart") {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const auto outcomes = test::onProcesses(3, [&](int rank) {
    ::setenv("MSCCLPP_HOSTID", rank == 2 ? "other" : "one", 1);
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(address);
    if (bootstrap.getNranksPerNode() != (rank == 2 ? 1 : 2)) throw std::runtime_error("a wrong count");
  });
  CHECK(outcomes == test::Outcomes(3));
}
