// Wrong arguments of one rank in the set-up of a communicator are errors of all ranks, soon. CPU ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/host/ranks.hpp"
#include "tests/nccl/cpu_client.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

constexpr int wrongRank = 1;

/// The arguments of a shrink.
struct Shrink {
  std::vector<int> excluded;
  int count;
  ncclConfig_t* config = nullptr;
  int flags = NCCL_SHRINK_DEFAULT;
  bool hasList = true;
  bool hasResult = true;

  Shrink(std::vector<int> list) : excluded(std::move(list)), count(static_cast<int>(excluded.size())) {}

  ncclResult_t operator()(ncclComm_t comm, ncclComm_t* made) {
    return ncclCommShrink(comm, hasList ? excluded.data() : nullptr, count, hasResult ? made : nullptr, config, flags);
  }
};

/// Every call has failed, for a reason that its rank can be told, and nothing was made.
void requireFailure(ncclResult_t result, ncclComm_t made, double seconds) {
  const std::string message = ncclGetLastError(nullptr);
  if ((result != ncclInvalidArgument && result != ncclRemoteError) || made != nullptr) {
    throw std::runtime_error("a set-up with a wrong argument returned " + std::to_string(result) + ": " + message);
  }
  if (seconds > soon) throw std::runtime_error("the failure was noticed too late: " + message);
}

/// Ranks 0 to 2 of four shrink without rank 3; the wrong one passes something else. With isRevoked their communicator
/// cannot be used afterwards.
void checkWrongShrink(const std::function<void(Shrink&)>& change, int flags = NCCL_SHRINK_DEFAULT,
                      bool isRevoked = false) {
  onRanks<CpuClient>(4, [&](CpuRank& c) {
    ncclComm_t made = nullptr;
    if (c.rank != 3) {
      Shrink shrink({3});
      shrink.flags = flags;
      if (c.rank == wrongRank) change(shrink);
      const auto start = std::chrono::steady_clock::now();
      const ncclResult_t result = shrink(c.comm, &made);
      requireFailure(result, made, secondsSince(start));
      // It can no longer be shrunk in this way, which all ranks know.
      if (!isRevoked && Shrink({3})(c.comm, &made) != ncclInvalidUsage) {
        throw std::runtime_error("a shrink after one that failed must return ncclInvalidUsage");
      }
    }
    if (!isRevoked) checkSum(c, c.comm, "the parent after a shrink that failed");
  });
}

/// Ranks 0 and 1 of a communicator, which ranks 2 and 3 join; the wrong ones pass something else.
void checkWrongGrowth(
    const std::function<ncclResult_t(ncclComm_t comm, int rank, ncclUniqueId& id, ncclComm_t*)>& call) {
  std::vector<ncclComm_t> comms(2);
  require(ncclCommInitAll(comms.data(), 2, nullptr), "ncclCommInitAll");
  ncclUniqueId id;
  require(ncclCommGetUniqueId(comms[0], &id), "ncclCommGetUniqueId");
  const auto grow = [&](int rank, const auto& callOne) {
    ncclUniqueId own = id;
    ncclComm_t made = nullptr;
    const auto start = std::chrono::steady_clock::now();
    const ncclResult_t result = callOne(rank < 2 ? comms[static_cast<std::size_t>(rank)] : nullptr, rank, own, &made);
    return std::tuple(result, made, secondsSince(start));
  };
  for (const auto& outcome : onThreads(4, [&](int rank) {
         const auto [result, made, seconds] = grow(rank, call);
         requireFailure(result, made, seconds);
       })) {
    CHECK(outcome == "");
  }
  // With another id it grows.
  require(ncclCommGetUniqueId(comms[1], &id), "ncclCommGetUniqueId");
  for (const auto& outcome : onThreads(4, [&](int rank) {
         const auto [result, made, seconds] = grow(rank, [](ncclComm_t comm, int r, ncclUniqueId& own, ncclComm_t* to) {
           return ncclCommGrow(comm, 4, comm == nullptr ? &own : nullptr, comm == nullptr ? r : -1, to, nullptr);
         });
         require(result, "ncclCommGrow after one that failed");
         CpuRank c{rank, 4, made, {}};
         checkSum(c, made, "a grown communicator");
         require(ncclCommDestroy(made), "ncclCommDestroy");
       })) {
    CHECK(outcome == "");
  }
  for (const ncclComm_t comm : comms) require(ncclCommDestroy(comm), "ncclCommDestroy");
}

}  // namespace

TEST_CASE("another list of excluded ranks on one rank") {
  for (const auto& list : std::vector<std::vector<int>>{{2}, {}, {0}, {0, 3}, {2, 3}, {1}, {7}}) {
    CAPTURE(list.size());
    checkWrongShrink([&](Shrink& shrink) { shrink = Shrink(list); });
  }
}

TEST_CASE("other wrong arguments of a shrink on one rank") {
  ncclConfig_t notInitialised{};
  checkWrongShrink([](Shrink& shrink) { shrink.hasList = false; });
  checkWrongShrink([](Shrink& shrink) { shrink.count = -1; });
  checkWrongShrink([](Shrink& shrink) { shrink.hasResult = false; });
  checkWrongShrink([](Shrink& shrink) { shrink.flags = 5; });
  checkWrongShrink([&](Shrink& shrink) { shrink.config = &notInitialised; });
  checkWrongShrink([](Shrink& shrink) { shrink.flags = NCCL_SHRINK_ABORT; }, NCCL_SHRINK_DEFAULT, true);
}

TEST_CASE("wrong arguments of a shrink with NCCL_SHRINK_ABORT on one rank") {
  ncclConfig_t notInitialised{};
  checkWrongShrink([](Shrink& shrink) { shrink.excluded = {2}; }, NCCL_SHRINK_ABORT, true);
  checkWrongShrink([](Shrink& shrink) { shrink.count = 0; }, NCCL_SHRINK_ABORT, true);
  checkWrongShrink([](Shrink& shrink) { shrink.hasList = false; }, NCCL_SHRINK_ABORT, true);
  checkWrongShrink([&](Shrink& shrink) { shrink.config = &notInitialised; }, NCCL_SHRINK_ABORT, true);
}

TEST_CASE("excluded ranks that call a shrink do not disturb it") {
  onRanks<CpuClient>(3, [](CpuRank& c) {
    for (const int excluded : {2, 2, 1}) {
      ncclComm_t made = nullptr;
      const bool isExcluded = c.rank == excluded;
      if (excluded == 1 && c.rank == 2) continue;  // it has called one that failed
      const ncclResult_t result = Shrink(excluded == 1 ? std::vector{1, 2} : std::vector{2})(c.comm, &made);
      if (result != (isExcluded ? ncclInvalidArgument : ncclSuccess)) {
        throw std::runtime_error("a shrink that an excluded rank calls too returned " + std::to_string(result));
      }
      if (made == nullptr) continue;
      require(ncclCommDestroy(made), "ncclCommDestroy");
    }
    checkSum(c, c.comm, "the parent");
  });
}

TEST_CASE("a wrong argument of a rank of the communicator that grows") {
  using Call = std::function<ncclResult_t(ncclComm_t, ncclUniqueId&, ncclComm_t*)>;
  ncclConfig_t notInitialised{};
  for (const Call& wrong : std::vector<Call>{
           [](ncclComm_t comm, ncclUniqueId&, ncclComm_t*to) {
             return ncclCommGrow(comm, 5, nullptr, -1, to, nullptr);
           },
           [](ncclComm_t comm, ncclUniqueId&, ncclComm_t*to) {
             return ncclCommGrow(comm, 2, nullptr, -1, to, nullptr);
           },
           [](ncclComm_t comm, ncclUniqueId&, ncclComm_t*to) { return ncclCommGrow(comm, 4, nullptr, 1, to, nullptr); },
           [](ncclComm_t comm, ncclUniqueId&, ncclComm_t*) {
             return ncclCommGrow(comm, 4, nullptr, -1, nullptr, nullptr);
           },
           [](ncclComm_t comm, ncclUniqueId&id, ncclComm_t*to) {
             id.internal[60] = static_cast<char>(id.internal[60] ^ 1);
             return ncclCommGrow(comm, 4, &id, -1, to, nullptr);
           },
           [&](ncclComm_t comm, ncclUniqueId&, ncclComm_t*to) {
             return ncclCommGrow(comm, 4, nullptr, -1, to, &notInitialised);
           },
       }) {
    for (const int who : {0, 1}) {
      CAPTURE(who);
      checkWrongGrowth([&](ncclComm_t comm, int rank, ncclUniqueId& id, ncclComm_t* to) {
        if (rank == who) return wrong(comm, id, to);
        return ncclCommGrow(comm, 4, comm == nullptr ? &id : nullptr, comm == nullptr ? rank : -1, to, nullptr);
      });
    }
  }
}

TEST_CASE("a wrong argument of a rank that joins") {
  struct Joining {
    int ranks, number;
  };
  for (const Joining& wrong : {Joining{5, 2}, {4, 0}, {4, 1}, {4, 4}, {4, -1}, {0, 2}}) {
    CAPTURE(wrong.ranks);
    CAPTURE(wrong.number);
    checkWrongGrowth([&](ncclComm_t comm, int rank, ncclUniqueId& id, ncclComm_t* to) {
      if (rank == 2) return ncclCommGrow(nullptr, wrong.ranks, &id, wrong.number, to, nullptr);
      return ncclCommGrow(comm, 4, comm == nullptr ? &id : nullptr, comm == nullptr ? rank : -1, to, nullptr);
    });
  }
}
