// The first failure, later ones, aborts and departures, and the callbacks.
#include "host/bootstrap/failure_state.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using namespace mscclpp;
using namespace mscclpp::detail;

TEST_CASE("only the first failure counts, and each callback runs once") {
  FailureState state;
  std::vector<int> called;
  state.onFailure([&](const RankFailure& failure) { called.push_back(failure.rank); });
  CHECK_FALSE(state.hasFailed());
  CHECK_FALSE(state.failure());
  CHECK(state.fail({3, "its process ended"}));
  CHECK_FALSE(state.fail({4, "later"}));
  state.abort({0, "later still"});
  CHECK(called == std::vector{3});
  CHECK(state.hasFailed());
  CHECK(state.hasFailed(3));
  CHECK(state.hasFailed(4));
  CHECK(state.failure()->reason == "its process ended");
  CHECK(state.errorCode() == ErrorCode::RemoteError);
  CHECK(state.isAborted());
  CHECK(describe(*state.failure()) == "rank 3 failed: its process ended");
  state.onFailure([&](const RankFailure& failure) { called.push_back(10 + failure.rank); });
  CHECK(called == std::vector{3, 13});
}

TEST_CASE("later failures are recorded by rank, and each callback for them runs once per rank") {
  FailureState state;
  std::vector<int> first, later;
  state.onFailure([&](const RankFailure& failure) { first.push_back(failure.rank); });
  const auto subscription = state.onLaterFailure([&](const RankFailure& failure) { later.push_back(failure.rank); });
  state.fail({3, "its process ended"});
  state.failLater({3, "reported again"});
  CHECK_FALSE(state.fail({4, "stopped"}));
  state.failLater({1, "killed"});
  state.failLater({1, "killed again"});
  CHECK(first == std::vector{3});
  CHECK(later == std::vector{4, 1});
  CHECK(state.failure()->rank == 3);
  CHECK(state.hasFailed(4));
  CHECK_FALSE(state.hasFailed(2));
  CHECK(state.failureOf(3)->reason == "its process ended");
  CHECK(state.failureOf(4)->reason == "stopped");
  CHECK(state.failureOf(1)->reason == "killed");
  CHECK_FALSE(state.failureOf(2));
  std::vector<int> late;
  state.onLaterFailure([&](const RankFailure& failure) { late.push_back(failure.rank); });
  CHECK(late == std::vector{1, 4});
  state.unsubscribe(subscription);
  state.failLater({5, ""});
  CHECK(later == std::vector{4, 1});
  CHECK(late == std::vector{1, 4, 5});
}

TEST_CASE("an abort is this rank's own failure") {
  FailureState state;
  int failed = -1;
  state.onFailure([&](const RankFailure& failure) { failed = failure.rank; });
  state.abort({2, "aborted"});
  CHECK(state.isAborted());
  CHECK(state.hasFailed(2));
  CHECK(state.errorCode() == ErrorCode::Aborted);
  CHECK(failed == 2);
  CHECK_FALSE(state.fail({1, "later"}));
  CHECK(failed == 2);
}

TEST_CASE("ranks that leave do not count as failed, and each is reported once") {
  FailureState state;
  std::vector<int> left;
  int failures = 0;
  state.onFailure([&](const RankFailure&) { ++failures; });
  const auto subscription = state.onDeparture([&](int rank) { left.push_back(rank); });
  state.leave(5);
  state.leave(5);
  state.leave(1);
  CHECK(left == std::vector{5, 1});
  CHECK(state.hasLeft(5));
  CHECK_FALSE(state.hasLeft(2));
  CHECK(state.leftRanks() == std::vector{1, 5});
  CHECK_FALSE(state.hasFailed());
  CHECK(failures == 0);
  std::vector<int> late;
  state.onDeparture([&](int rank) { late.push_back(rank); });
  CHECK(late == std::vector{1, 5});
  state.unsubscribe(subscription);
  state.leave(2);
  CHECK(left == std::vector{5, 1});
  CHECK(late == std::vector{1, 5, 2});
}

TEST_CASE("an exception of a callback is contained") {
  FailureState state;
  int called = 0;
  state.onFailure([](const RankFailure&) { throw std::runtime_error("of the callback"); });
  state.onFailure([](const RankFailure&) { throw 1; });
  state.onFailure([&](const RankFailure&) { ++called; });
  state.fail({1, "reason"});
  CHECK(called == 1);
  state.onFailure([](const RankFailure&) { throw std::runtime_error("of a late callback"); });
}

TEST_CASE("a callback may abort, which runs the callbacks of failures") {
  FailureState state;
  std::vector<int> failed;
  state.onDeparture([&](int) { state.abort({0, "a rank left"}); });
  state.onFailure([&](const RankFailure& failure) { failed.push_back(failure.rank); });
  state.leave(3);
  CHECK(failed == std::vector{0});
  CHECK(state.isAborted());
  CHECK(state.hasLeft(3));
}

TEST_CASE("a removed callback does not run") {
  FailureState state;
  int called = 0;
  state.unsubscribe(state.onFailure([&](const RankFailure&) { ++called; }));
  state.fail({1, "reason"});
  CHECK(called == 0);
}

TEST_CASE("a callback that is added by a callback is told of the same failure once") {
  FailureState state;
  int added = 0, addedForLater = 0, addedForDeparture = 0;
  state.onFailure([&](const RankFailure&) { state.onFailure([&](const RankFailure&) { ++added; }); });
  state.onLaterFailure([&](const RankFailure& failure) {
    if (failure.rank == 2) state.onLaterFailure([&](const RankFailure&) { ++addedForLater; });
  });
  state.onDeparture([&](int rank) {
    if (rank == 4) state.onDeparture([&](int) { ++addedForDeparture; });
  });
  state.fail({1, "reason"});
  CHECK(added == 1);
  state.failLater({2, "reason"});
  CHECK(addedForLater == 1);
  state.failLater({3, "reason"});
  CHECK(addedForLater == 2);
  state.leave(4);
  CHECK(addedForDeparture == 1);
  state.leave(5);
  CHECK(addedForDeparture == 2);
}

TEST_CASE("a callback may remove itself and others, and completes its run") {
  FailureState state;
  std::vector<std::string> called;
  FailureDetector::Subscription self = 0, next = 0;
  const auto before = state.onDeparture([&](int) { called.push_back("before"); });
  self = state.onDeparture([&, name = std::string("a text that is too long to be stored in the string object")](int) {
    state.unsubscribe(before);
    state.unsubscribe(self);
    state.unsubscribe(next);
    called.push_back(name);
  });
  next = state.onDeparture([&](int) { called.push_back("next"); });
  state.onDeparture([&](int rank) { called.push_back("last " + std::to_string(rank)); });
  state.leave(1);
  state.leave(2);
  CHECK(called == std::vector<std::string>{"before", "a text that is too long to be stored in the string object",
                                           "last 1", "last 2"});
}

TEST_CASE("a null callback is rejected") {
  FailureState state;
  const auto text = doctest::Contains("must not be null");
  CHECK_THROWS_WITH_AS(state.onFailure(nullptr), text, Error);
  CHECK_THROWS_WITH_AS(state.onLaterFailure(nullptr), text, Error);
  CHECK_THROWS_WITH_AS(state.onDeparture(nullptr), text, Error);
}
