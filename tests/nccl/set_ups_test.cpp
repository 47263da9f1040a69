// Set-ups of communicators of CPU ranks that run at once, fail or are aborted, and ends that others wait for.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/backend/sanitizer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/ranks.hpp"
#include "tests/nccl/cpu_client.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

void requireAllSucceeded(const Outcomes& outcomes) {
  for (const auto& outcome : outcomes) {
    if (!outcome.empty()) throw std::runtime_error(outcome);
  }
}

/// Calls of ranks that wait for one that never comes end when their communicators are aborted.
void checkAborts(int ranks, const std::function<ncclResult_t(ncclComm_t)>& call) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclCommInitAll(comms.data(), ranks, nullptr), "ncclCommInitAll");
  const auto callers = comms.size() - 1;  // the last rank does not call
  const auto start = std::chrono::steady_clock::now();
  std::vector<ncclResult_t> results(callers, ncclSuccess);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < callers; ++i) threads.emplace_back([&, i] { results[i] = call(comms[i]); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they wait by then
  for (const ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  for (auto& thread : threads) thread.join();
  CHECK(secondsSince(start) < soon);
  for (const ncclResult_t result : results) CHECK(result != ncclSuccess);
}

/// In a process that lacks what its ranks need: all of them fail, soon, and nothing is left that waits.
void requireFailure(const char* what, int ranks) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  const auto start = std::chrono::steady_clock::now();
  if (ncclCommInitAll(comms.data(), ranks, nullptr) != ncclSystemError) {
    throw std::runtime_error(std::string("without ") + what + " ncclCommInitAll must return ncclSystemError, not " +
                             ncclGetLastError(nullptr));
  }
  if (secondsSince(start) > soon) throw std::runtime_error("the failure was noticed too late");
}

/// Sets a limit of this process, for a scope.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    ::getrlimit(resource, &before_);
    const rlimit limit{value, before_.rlim_max};
    if (::setrlimit(resource, &limit) != 0) throw std::runtime_error("setrlimit");
  }
  ~Limit() { ::setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  const __rlimit_resource resource_;
  rlimit before_{};
};

}  // namespace

TEST_CASE("threads split communicators over the same connections at once, without a common order") {
  constexpr int splits = 50;
  onRanks<CpuClient>(3, [](CpuRank& c) {
    ncclComm_t reversed = nullptr, pair = nullptr;  // which other ranks are the first of
    require(ncclCommSplit(c.comm, 0, -c.rank, &reversed, nullptr), "ncclCommSplit");
    require(ncclCommSplit(c.comm, c.rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, c.rank, &pair, nullptr), "ncclCommSplit");
    std::vector<ncclComm_t> parents{c.comm, reversed};
    if (pair != nullptr) parents.push_back(pair);
    requireAllSucceeded(onThreads(static_cast<int>(parents.size()), [&](int thread) {
      const ncclComm_t parent = parents[static_cast<std::size_t>(thread)];
      const CpuRank own{c.rank, c.ranks, c.comm, {}};
      for (int i = 0; i < splits; ++i) {
        ncclComm_t part = nullptr;
        require(ncclCommSplit(parent, 0, c.rank, &part, nullptr), "ncclCommSplit");
        checkSum(own, part, "a part");
        require(ncclCommDestroy(part), "ncclCommDestroy");
      }
    }));
    for (const ncclComm_t comm : {reversed, pair}) {
      if (comm != nullptr) require(ncclCommDestroy(comm), "ncclCommDestroy");
    }
  });
}

TEST_CASE("a part costs few descriptors and no thread") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Outcomes outcomes = onProcesses(2, [&](int rank) {
    constexpr std::size_t splits = 200;
    // Scratch and barriers are two pieces of memory; abort wakes a set-up by a descriptor.
    constexpr std::size_t descriptorsOfSplit = 3;
    constexpr std::size_t ports = 64;  // at which the newest communicators could be connected anew
    ncclComm_t comm = nullptr;
    require(ncclCommInitRank(&comm, 2, id, rank), "ncclCommInitRank");
    const std::size_t descriptors = openDescriptors();
    const std::size_t threads = liveThreads();
    std::vector<ncclComm_t> parts(splits);
    for (ncclComm_t& part : parts) require(ncclCommSplit(comm, 0, rank, &part, nullptr), "ncclCommSplit");
    const std::size_t most = descriptors + splits * descriptorsOfSplit + ports;
    if (openDescriptors() > most) {
      throw std::runtime_error(std::to_string(openDescriptors()) + " descriptors, but at most " + std::to_string(most));
    }
    if (liveThreads() != threads) throw std::runtime_error(std::to_string(liveThreads()) + " threads");
    for (const ncclComm_t part : parts) require(ncclCommDestroy(part), "ncclCommDestroy");
    if (openDescriptors() > descriptors + ports) throw std::runtime_error("descriptors remain");
    require(ncclCommDestroy(comm), "ncclCommDestroy");
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("an abort ends a growth whose new rank does not come") {
  checkAborts(3, [](ncclComm_t comm) {
    ncclComm_t grown = nullptr;
    return ncclCommGrow(comm, 4, nullptr, -1, &grown, nullptr);
  });
}

TEST_CASE("an abort ends a shrink or split of what was revoked, when a rank does not come") {
  checkAborts(3, [](ncclComm_t comm) {
    ncclComm_t shrunk = nullptr;
    return ncclCommShrink(comm, nullptr, 0, &shrunk, nullptr, NCCL_SHRINK_ABORT);
  });
  checkAborts(3, [](ncclComm_t comm) {
    ncclComm_t split = nullptr;
    const ncclResult_t revoked = ncclCommRevoke(comm, 0);
    return revoked != ncclSuccess ? ncclSuccess : ncclCommSplit(comm, 0, 0, &split, nullptr);
  });
}

TEST_CASE("ranks of a process notice that one of them has destroyed its communicator") {
  std::vector<ncclComm_t> comms(3);
  require(ncclCommInitAll(comms.data(), 3, nullptr), "ncclCommInitAll");
  const auto start = std::chrono::steady_clock::now();
  std::vector<ncclResult_t> results(2, ncclSuccess);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      float value = 1;
      results[i] = ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[i], nullptr);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // they wait by then
  CHECK(ncclCommDestroy(comms[2]) == ncclSuccess);
  for (auto& thread : threads) thread.join();
  CHECK(secondsSince(start) < soon);
  for (const ncclResult_t result : results) CHECK(result == ncclRemoteError);
  for (std::size_t i = 0; i < results.size(); ++i) CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
}

TEST_CASE("ranks of a process do not wait for one that lacks open files") {
  const Outcomes outcomes = onProcesses(1, [](int) {
    {
      const Limit limit(RLIMIT_NOFILE, 40);
      requireFailure("files", 8);
    }
    onRanks<CpuClient>(2, [](CpuRank& c) { checkSum(c, c.comm, "after a failure"); });
  });
  CHECK(outcomes[0] == "");
}

// Sanitizers need address space themselves; clang's AddressSanitizer leaves enough.
#if !defined(__SANITIZE_ADDRESS__) && !MSCCLPP_TEST_TSAN
TEST_CASE("ranks of a process do not wait for one that lacks a thread") {
  for (const int stacks : {0, 3, 9}) {  // those of the set-ups, and then those of the connections
    CAPTURE(stacks);
    const Outcomes outcomes = onProcesses(1, [&](int) {
      constexpr std::size_t stack = std::size_t{32} << 20;
      pthread_attr_t attributes;
      ::pthread_attr_init(&attributes);
      ::pthread_attr_setstacksize(&attributes, stack);
      ::pthread_setattr_default_np(&attributes);
      ::pthread_attr_destroy(&attributes);
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      {
        const Limit limit(RLIMIT_AS,
                          pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + stacks * stack + stack / 2);
        requireFailure("threads", 8);
      }
      onRanks<CpuClient>(2, [](CpuRank& c) { checkSum(c, c.comm, "after a failure"); });
    });
    CHECK(outcomes[0] == "");
  }
}
#endif
