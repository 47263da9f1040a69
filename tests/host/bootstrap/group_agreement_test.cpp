// Steps that a group of ranks takes together, over a bootstrap that buffers no more than it must.
#include "host/bootstrap/group_agreement.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "tests/host/mailbox_bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using detail::GroupAgreement;

namespace {

constexpr int ranks = 4;

std::vector<char> bytesOf(const std::string& text) {
  return {text.begin(), text.end()};
}

// Throws what `call` throws if that is not an Error with this code and `part` in its message.
void expectError(ErrorCode code, const std::string& part, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.getErrorCode() != code || std::string(error.what()).find(part) == std::string::npos) throw;
    return;
  }
  throw std::runtime_error("nothing was thrown where \"" + part + "\" was expected");
}

Outcomes onRanks(const std::function<void(std::shared_ptr<Bootstrap>)>& body) {
  const auto mailboxes = std::make_shared<Mailboxes>();
  return onThreads(ranks, [&](int rank) { body(std::make_shared<MailboxBootstrap>(rank, ranks, mailboxes)); });
}

const Outcomes allPassed(ranks);

}  // namespace

TEST_CASE("every rank of a group gets the results of all, in the order of the ranks") {
  CHECK(onRanks([](const auto& bootstrap) {
          if (bootstrap->getRank() == 2) return;
          const GroupAgreement group(*bootstrap, {3, 0, 1}, "group");
          // Of the largest size that all ranks may send at once, with room for the name of the step.
          const std::vector<char> own(Bootstrap::MinBufferedBytes - 1000,
                                      static_cast<char>('a' + bootstrap->getRank()));
          const auto results = group.runStep("exchange letters", [&] { return own; });
          if (results.size() != 3) throw std::runtime_error("not as many results as ranks");
          for (std::size_t i = 0; i < results.size(); ++i) {
            const std::vector<char> expected(own.size(), "abd"[i]);
            if (results[i] != expected)
              throw std::runtime_error("another result than that of rank " + std::to_string(i));
          }
        }) == allPassed);
}

TEST_CASE("every rank of a group gets the values of all, of which each has the same type") {
  struct Point {
    int x;
    double y;
  };
  CHECK(onRanks([](const auto& bootstrap) {
          const int rank = bootstrap->getRank();
          const GroupAgreement group(*bootstrap, "group");
          const auto points = group.gather("state its point", [&] { return Point{rank, 0.5 * rank}; });
          for (int other = 0; other < ranks; ++other) {
            const Point& of = points.at(static_cast<std::size_t>(other));
            if (of.x != other || of.y != 0.5 * other) throw std::runtime_error("another point");
          }
          if (rank == 1) {
            expectError(ErrorCode::InvalidUsage, "use the same version of mscclpp on all ranks",
                        [&] { group.gather("state its size", [] { return 1; }); });
          } else {
            expectError(ErrorCode::InvalidUsage, "rank 1 sends 4 bytes where this rank has 8",
                        [&] { group.gather("state its size", [] { return 1.0; }); });
          }
        }) == allPassed);
}

TEST_CASE("a failed step throws on every rank: the exception there, the rank and the reason elsewhere") {
  CHECK(onRanks([](const auto& bootstrap) {
          const GroupAgreement group(*bootstrap, "group");
          const auto step = [&] {
            group.runStep("open the file", [&]() -> std::vector<char> {
              if (bootstrap->getRank() == 1) throw Error("no such file\033[31m", ErrorCode::SystemError);
              return {};
            });
          };
          if (bootstrap->getRank() == 1) {
            expectError(ErrorCode::SystemError, "no such file", step);
          } else {
            expectError(ErrorCode::RemoteError, "group: rank 1 failed to open the file: no such file?[31m", step);
          }
          // The group is still in step.
          group.runStep("close the file", [] { return bytesOf("closed"); });
        }) == allPassed);
}

TEST_CASE("ranks at different steps get an error that names both") {
  CHECK(onRanks([](const auto& bootstrap) {
          const GroupAgreement group(*bootstrap, "group");
          const bool isOdd = bootstrap->getRank() == 3;
          expectError(ErrorCode::InvalidUsage, isOdd ? "rank 0 is about to read" : "rank 3 is about to write",
                      [&] { group.runStep(isOdd ? "write" : "read", [] { return bytesOf(""); }); });
        }) == allPassed);
}

TEST_CASE("a group must consist of different ranks of the job that include the caller") {
  MailboxBootstrap bootstrap(1, ranks, std::make_shared<Mailboxes>());
  for (const std::vector<int>& group : {std::vector{0, 2}, {1, 1}, {-1, 1}, {1, 4}, {}}) {
    CAPTURE(group.size());
    CHECK_THROWS_WITH_AS(GroupAgreement(bootstrap, group, "group"), doctest::Contains("group"), Error);
  }
}

TEST_CASE("barriers of groups, connections and symmetric memory work with a bootstrap that buffers little") {
  CHECK(onRanks([](const auto& bootstrap) {
          for (int i = 0; i < 100; ++i) bootstrap->groupBarrier({0, 1, 2, 3});
          Communicator communicator(bootstrap);
          std::vector<std::shared_future<Connection>> connections;
          for (int peer = 0; peer < ranks; ++peer) {
            if (peer != bootstrap->getRank())
              connections.push_back(communicator.connect(Transport::SharedMemory, peer));
          }
          for (const auto& connection : connections) connection.get();
          const SymmetricMemory memory(communicator, 4096, DeviceType::CPU);
          bootstrap->barrier();
        }) == allPassed);
}
