// A bootstrap over some ranks of another: messages, collectives, failures of members and of others.
#include "host/bootstrap/subset_bootstrap.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using detail::SubsetBootstrap;

namespace {

/// Runs a body on threads with a bootstrap over TCP.
void onTcpRanks(int ranks, const std::function<void(std::shared_ptr<TcpBootstrap>)>& body) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const Outcomes outcomes = onThreads(ranks, [&](int rank) {
    auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(id);
    body(std::move(bootstrap));
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("messages and collectives stay in their subset") {
  onTcpRanks(5, [](const std::shared_ptr<TcpBootstrap>& parent) {
    // Two subsets of one context at the same time, and one of another context across both.
    const int rank = parent->getRank();
    const std::vector<int> members = rank % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
    SubsetBootstrap half(parent, members, 1);
    SubsetBootstrap all(parent, {0, 1, 2, 3, 4}, 2);
    require(members[static_cast<std::size_t>(half.getRank())] == rank, "the rank");
    require(half.getNranksPerNode() == half.getNranks(), "the ranks of this host");
    for (int round = 0; round < 3; ++round) {
      std::vector<int> values(static_cast<std::size_t>(half.getNranks()), -1);
      values[static_cast<std::size_t>(half.getRank())] = rank + round;
      half.allGather(values.data(), sizeof(int));
      for (std::size_t i = 0; i < values.size(); ++i) require(values[i] == members[i] + round, "allGather");
      std::vector<int> ofAll(5, -1);
      ofAll[static_cast<std::size_t>(rank)] = rank;
      all.allGather(ofAll.data(), sizeof(int));
      for (int i = 0; i < 5; ++i) require(ofAll[static_cast<std::size_t>(i)] == i, "allGather of all");
      half.barrier();
      all.barrier();
    }
    // The same tag in the parent and in two contexts.
    int sent[3] = {10, 11, 12}, received[3] = {};
    const int next = (half.getRank() + 1) % half.getNranks();
    const int previous = (half.getRank() + half.getNranks() - 1) % half.getNranks();
    const int parentNext = members[static_cast<std::size_t>(next)];
    const int parentPrevious = members[static_cast<std::size_t>(previous)];
    parent->send(&sent[0], sizeof(int), parentNext, 7);
    all.send(&sent[1], sizeof(int), parentNext, 7);
    half.send(&sent[2], sizeof(int), next, 7);
    half.recv(&received[2], sizeof(int), previous, 7);
    all.recv(&received[1], sizeof(int), parentPrevious, 7);
    parent->recv(&received[0], sizeof(int), parentPrevious, 7);
    for (int i = 0; i < 3; ++i) require(received[i] == sent[i], "tags of different contexts");
    parent->barrier();
  });
}

TEST_CASE("wrong arguments") {
  onTcpRanks(2, [](const std::shared_ptr<TcpBootstrap>& parent) {
    const auto code = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.getErrorCode() == ErrorCode::InvalidUsage;
      }
      return false;
    };
    require(code([&] { SubsetBootstrap(parent, {1 - parent->getRank()}, 1); }), "the caller is no member");
    require(code([&] { SubsetBootstrap(parent, {0, 1}, 0); }), "the context of the parent");
    require(code([&] { SubsetBootstrap(parent, {0, 1}, SubsetBootstrap::maxContext + 1); }), "a large context");
    SubsetBootstrap both(parent, {0, 1}, SubsetBootstrap::maxContext);
    char byte = 0;
    require(code([&] { both.send(&byte, 1, 2, 0); }), "no such rank");
    require(code([&] { both.send(&byte, 1, 0, SubsetBootstrap::tags); }), "a large tag");
    both.barrier();
  });
}

TEST_CASE("only the failure of a member is reported, by its rank in the subset") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::vector<ChildProcess> children;
  const Reports ready;
  for (int rank = 0; rank < 4; ++rank) {
    children.emplace_back([&, rank] {
      auto parent = std::make_shared<TcpBootstrap>(rank, 4);
      parent->initialize(id);
      const bool hasVictim = rank != 1;
      // Rank 3 is killed: the last member of one subset, and no member of the other.
      SubsetBootstrap with(parent, hasVictim ? std::vector<int>{2, 0, 3} : std::vector<int>{1}, 1);
      SubsetBootstrap without(parent, rank == 3 ? std::vector<int>{3} : std::vector<int>{0, 1, 2}, 2);
      std::atomic<int> reported = -1, elsewhere = -1;
      const auto first = with.onFailure([&](const RankFailure& failure) { reported = failure.rank; });
      const auto second = without.onFailure([&](const RankFailure& failure) { elsewhere = failure.rank; });
      parent->barrier();
      ready.add();
      if (rank == 3) ::pause();
      const auto start = std::chrono::steady_clock::now();
      while (!parent->failure() && secondsSince(start) < soon) std::this_thread::yield();
      while (hasVictim && reported < 0 && secondsSince(start) < soon) std::this_thread::yield();
      require(reported == (hasVictim ? 2 : -1), "the failed member");
      require(elsewhere == -1, "a failure of another rank");
      require(hasVictim == with.failure().has_value(), "failure()");
      require(!without.failure(), "failure() without the member");
      with.unsubscribe(first);
      without.unsubscribe(second);
    });
  }
  ready.wait(4);  // all have passed the barrier
  children[3].kill(SIGKILL);
  CHECK(children[3].wait() == "signal 9");
  for (int rank = 0; rank < 3; ++rank) CHECK(children[static_cast<std::size_t>(rank)].wait() == "");
}

TEST_CASE("a member that leaves a subset is reported there alone, and ends what waits for it there") {
  onTcpRanks(3, [](const std::shared_ptr<TcpBootstrap>& parent) {
    const int rank = parent->getRank();
    auto left = std::make_unique<SubsetBootstrap>(parent, std::vector<int>{2, 0, 1}, 1);
    SubsetBootstrap other(parent, {0, 1, 2}, 2);
    std::atomic<int> reported = -1, reports = 0, elsewhere = 0;
    const auto count = [&](int member) {
      reported = member;
      ++reports;
    };
    const auto first = left->onDeparture(count);
    const auto second = other.onDeparture([&](int) { ++elsewhere; });
    char byte = 7;
    if (rank == 1) {
      left->send(&byte, 1, 1, 0);
      other.send(&byte, 1, 0, 0);
      left->leave();
      left->leave();
    } else if (rank == 0) {
      char received = 0;
      left->recv(&received, 1, 2, 0);  // sent before
      require(received == 7, "a message before the departure");
      bool hasFailed = false;
      try {
        left->recv(&received, 1, 2, 1);
      } catch (const Error& error) {
        hasFailed = error.getErrorCode() == ErrorCode::RemoteError;
      }
      require(hasFailed, "a message that was never sent");
      other.recv(&received, 1, 1, 0);
    }
    if (rank != 1) {
      const auto start = std::chrono::steady_clock::now();
      while (reports == 0 && secondsSince(start) < soon) std::this_thread::yield();
      require(reported == 2, "the member that left");
      // One that subscribes later is told too.
      std::atomic<int> late = -1;
      const auto third = left->onDeparture([&](int member) { late = member; });
      require(late == 2, "a later subscription");
      left->unsubscribe(third);
    }
    for (int i = 0; i < 3; ++i) other.barrier();
    require(elsewhere == 0, "a departure in another subset");
    require(reports == (rank == 1 ? 0 : 1), "one report");
    left->unsubscribe(first);
    other.unsubscribe(second);
    left.reset();
    other.barrier();
  });
}

TEST_CASE("a subset that is disconnected leaves the parent to others, and ends it as its last owner") {
  onTcpRanks(2, [](std::shared_ptr<TcpBootstrap> parent) {
    const bool isFirst = parent->getRank() == 0;
    auto subset = std::make_shared<SubsetBootstrap>(parent, std::vector<int>{0, 1}, 1);
    std::atomic<int> departures = 0;
    const auto subscription = subset->onDeparture([&](int) { ++departures; });
    SubsetBootstrap(parent, {0, 1}, 2).disconnect();
    subset->barrier();
    require(departures == 0, "the parent has other owners");
    if (isFirst) {
      const std::weak_ptr<TcpBootstrap> ended = parent;
      parent.reset();
      subset->disconnect();
      require(ended.expired(), "the last owner");
      bool isAborted = false;
      try {
        subset->barrier();
      } catch (const Error& error) {
        isAborted = error.getErrorCode() == ErrorCode::Aborted;
      }
      require(isAborted, "a later call must throw");
      subset->abort();
    } else {
      const auto start = std::chrono::steady_clock::now();
      while (departures == 0 && secondsSince(start) < soon) std::this_thread::yield();
      require(departures == 1, "the departure");
    }
    subset->unsubscribe(subscription);
  });
}

TEST_CASE("abort ends a blocked call") {
  onTcpRanks(2, [](const std::shared_ptr<TcpBootstrap>& parent) {
    SubsetBootstrap both(parent, {0, 1}, 1);
    require(!both.abortBlocked(), "nothing is blocked");
    both.barrier();
    if (parent->getRank() == 1) {  // it must not leave before the call of the other is blocked
      const auto start = std::chrono::steady_clock::now();
      while (!parent->failure() && secondsSince(start) < soon) std::this_thread::yield();
      require(parent->failure().has_value(), "the abort of a peer is a failure");
      return;
    }
    std::thread aborter([&] {
      while (!both.abortBlocked()) std::this_thread::yield();
    });
    char byte = 0;
    bool isAborted = false;
    try {
      both.recv(&byte, 1, 1, 3);
    } catch (const Error&) {
      isAborted = true;
    }
    aborter.join();
    require(isAborted, "the call must throw");
  });
}
