// TcpBootstrap between ranks that behave: messages, tags, collectives, and the errors of wrong use.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::onProcesses;
using test::onThreads;

namespace {

void requireSuccess(const test::Outcomes& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    INFO("rank ", rank);
    CHECK(outcomes[rank] == "");
  }
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("expected: " + what);
}

// Every operation once, with contents that depend on the ranks.
void exercise(TcpBootstrap& bootstrap) {
  const int rank = bootstrap.getRank(), n = bootstrap.getNranks();
  expect(bootstrap.getNranksPerNode() == n, "all ranks on one node");
  expect(bootstrap.getNranksPerIpcDomain() == n, "all ranks in one domain");

  std::vector<int> gathered(n, -1);
  gathered[rank] = rank * 3 + 1;
  bootstrap.allGather(gathered.data(), sizeof(int));
  for (int i = 0; i < n; ++i) expect(gathered[i] == i * 3 + 1, "allGather's slot " + std::to_string(i));

  for (int root = 0; root < n; ++root) {
    std::vector<char> bytes(1000, static_cast<char>(rank == root ? root + 7 : 0));
    bootstrap.broadcast(bytes.data(), static_cast<int>(bytes.size()), root);
    expect(std::all_of(bytes.begin(), bytes.end(), [&](char c) { return c == root + 7; }), "broadcast");
  }
  bootstrap.barrier();

  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  for (int tag : {5, 0, 9}) {
    int value = rank * 100 + tag;
    bootstrap.send(&value, sizeof(value), next, tag);
  }
  for (int tag : {9, 5, 0}) {
    int value = -1;
    bootstrap.recv(&value, sizeof(value), previous, tag);
    expect(value == previous * 100 + tag, "the message of tag " + std::to_string(tag));
  }
  bootstrap.send(nullptr, 0, next, 1);
  bootstrap.recv(nullptr, 0, previous, 1);
}

}  // namespace

TEST_CASE("ranks on threads exchange all kinds of messages") {
  for (int n : {1, 2, 3, 5, 8}) {
    CAPTURE(n);
    const UniqueId id = TcpBootstrap::createUniqueId();
    requireSuccess(onThreads(n, [&](int rank) {
      TcpBootstrap bootstrap(rank, n);
      bootstrap.initialize(id);
      exercise(bootstrap);
    }));
  }
}

TEST_CASE("ranks in processes exchange all kinds of messages") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  requireSuccess(onProcesses(4, [&](int rank) {
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(id);
    exercise(bootstrap);
  }));
}
