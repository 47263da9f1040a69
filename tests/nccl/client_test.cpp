// The client on CPU ranks: threads of this process, groups of one thread, and processes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>

#include "tests/backend/sanitizer.hpp"
#include "tests/host/ranks.hpp"
#include "tests/nccl/cpu_client.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

/// A group of one thread that initialises all ranks.
std::vector<ncclComm_t> initInGroup(int ranks) {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < ranks; ++rank) require(ncclCommInitRank(&comms[rank], ranks, id, rank), "ncclCommInitRank");
  require(ncclGroupEnd(), "ncclGroupEnd");
  return comms;
}

void destroy(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

}  // namespace

TEST_CASE("every reduction, type, operator and form") {
  for (const int ranks : thinned({1, 2, 3}, {3})) {
    CAPTURE(ranks);
    onRanks<CpuClient>(ranks, [](CpuRank& c) {
      for (const ncclDataType_t type : allTypes()) {
        for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
          // The average of three is not exact.
          if (op == ncclAvg && c.ranks == 3 && formatOf(type).exponentBits > 0) continue;
          for (const std::size_t count : {0, 1, 257}) {
            for (const bool inPlace : {false, true}) checkReductions(c, type, op, count, inPlace);
          }
        }
      }
    });
  }
}

TEST_CASE("every collective that moves data") {
  for (const int ranks : thinned({1, 2, 5, 8}, {5})) {
    CAPTURE(ranks);
    onRanks<CpuClient>(ranks, [](CpuRank& c) {
      for (const ncclDataType_t type : {ncclInt8, ncclBfloat16, ncclFloat32, ncclFloat64}) {
        for (const std::size_t count : {0, 1, 1000}) {
          for (const bool inPlace : {false, true}) checkMoves(c, type, count, inPlace);
        }
      }
    });
  }
}

TEST_CASE("messages of a group, operators, windows, groups, splits, shrinks") {
  for (const int ranks : {2, 3, 8}) {
    CAPTURE(ranks);
    onRanks<CpuClient>(ranks, [](CpuRank& c) {
      for (const int messages : {1, 3, 40}) checkMessages(c, messages);
      checkOperators(c);
      checkWindows(c);
      for (const std::size_t count : {0, 1000, 70'000}) {  // the last ones by kernels of their own
        for (const bool inPlace : {false, true}) checkMoves(c, ncclInt8, count, inPlace, true);
      }
      for (const std::size_t longest : {100, 30'001}) checkReductionGroup(c, longest);
      checkMixedGroup(c);
      checkUnlikeGroups(c);
      checkSplits(c);
      checkShrink(c);
    });
  }
}

TEST_CASE("one thread has all ranks, in groups") {
  const auto comms = initInGroup(3);
  const CpuRank c{0, 3, nullptr, {}};
  std::vector<CpuClient::Memory> inputs, outputs, received;
  for (int rank = 0; rank < 3; ++rank) {
    inputs.push_back(c.make(encode(ncclFloat32, valuesOf(rank, 0, 100))));
    outputs.push_back(c.poisoned(400));
    received.push_back(c.poisoned(400));
  }
  require(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t rank = 0; rank < 3; ++rank) {
    require(ncclAllReduce(inputs[rank].data(), outputs[rank].data(), 100, ncclFloat32, ncclSum, comms[rank], nullptr),
            "ncclAllReduce");
    require(ncclSend(inputs[rank].data(), 100, ncclFloat32, static_cast<int>(rank + 1) % 3, comms[rank], nullptr),
            "ncclSend");
    require(ncclRecv(received[rank].data(), 100, ncclFloat32, static_cast<int>(rank + 2) % 3, comms[rank], nullptr),
            "ncclRecv");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(outputs[rank].read() == encode(ncclFloat32, reducedValues(ncclSum, false, 3, 0, 100, 0)));
    CHECK(received[rank].read() == encode(ncclFloat32, valuesOf((rank + 2) % 3, 0, 100)));
  }
  std::vector<ncclComm_t> parts(3);
  require(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 3; ++rank) require(ncclCommSplit(comms[rank], rank / 2, 0, &parts[rank], nullptr), "split");
  CHECK(parts[0] == nullptr);  // not before the group ends
  require(ncclGroupEnd(), "ncclGroupEnd");
  int ranks = 0;
  CHECK(ncclCommCount(parts[1], &ranks) == ncclSuccess);
  CHECK(ranks == 2);
  destroy(parts);
  destroy(comms);
}

TEST_CASE("set-ups of a communicator in one group are in the order of the calls") {
  onRanks<CpuClient>(4, [](CpuRank& c) {
    constexpr std::size_t windows = 6, count = 500;
    for (int i = 0; i < 8; ++i) {
      // Of a parent and of what was split from it, beside each other.
      ncclComm_t all = nullptr, half = nullptr, halfAgain = nullptr, pair = nullptr;
      require(ncclGroupStart(), "ncclGroupStart");
      require(ncclCommSplit(c.comm, 0, c.rank, &all, nullptr), "ncclCommSplit");
      require(ncclCommSplit(c.comm, c.rank / 2, c.rank, &half, nullptr), "ncclCommSplit");
      require(ncclGroupEnd(), "ncclGroupEnd");
      checkSum(c, all, "all");
      checkSum(c, half, "half");
      require(ncclGroupStart(), "ncclGroupStart");
      // The order of the calls of several communicators may differ.
      if (c.rank % 2 == 0) require(ncclCommSplit(half, 0, c.rank, &halfAgain, nullptr), "ncclCommSplit");
      require(ncclCommSplit(c.comm, c.rank % 2, c.rank, &pair, nullptr), "ncclCommSplit");
      if (c.rank % 2 == 1) require(ncclCommSplit(half, 0, c.rank, &halfAgain, nullptr), "ncclCommSplit");
      require(ncclGroupEnd(), "ncclGroupEnd");
      checkSum(c, halfAgain, "half again");
      checkSum(c, pair, "pair");
      for (const ncclComm_t comm : {all, half, halfAgain, pair}) require(ncclCommDestroy(comm), "ncclCommDestroy");
    }
    std::array<void*, windows> data{};
    std::array<ncclWindow_t, windows> handles{};
    for (void*& each : data) require(ncclMemAlloc(&each, count * 4 * 4), "ncclMemAlloc");
    require(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t i = 0; i < windows; ++i) {
      require(ncclCommWindowRegister(c.comm, data[i], count * 4 * 4, &handles[i], NCCL_WIN_COLL_SYMMETRIC), "register");
    }
    require(ncclGroupEnd(), "ncclGroupEnd");
    for (std::size_t i = 0; i < windows; ++i) {
      const std::vector<float> input(count, static_cast<float>(100 * i + static_cast<std::size_t>(c.rank)));
      require(ncclAllGather(input.data(), data[i], count, ncclFloat32, c.comm, nullptr), "ncclAllGather");
    }
    for (std::size_t i = 0; i < windows; ++i) {
      for (std::size_t rank = 0; rank < 4; ++rank) {
        if (static_cast<float*>(data[i])[rank * count] != static_cast<float>(100 * i + rank))
          throw std::runtime_error("the data of another window");
      }
    }
    checkSum(c, c.comm, "before the windows end");
    for (const ncclWindow_t handle : handles) require(ncclCommWindowDeregister(c.comm, handle), "deregister");
    checkSum(c, c.comm, "after the windows have ended");
    for (void* each : data) require(ncclMemFree(each), "ncclMemFree");
  });
}

TEST_CASE("a window without NCCL_WIN_COLL_SYMMETRIC has calls at any offsets, and its address") {
  onRanks<CpuClient>(2, [](CpuRank& c) {
    constexpr std::size_t count = 1000;
    std::vector<float> data(5 * count);
    ncclWindow_t window = nullptr;
    require(ncclCommWindowRegister(c.comm, data.data(), data.size() * 4, &window, 0), "ncclCommWindowRegister");
    void* address = nullptr;
    require(ncclWinGetUserPtr(c.comm, window, &address), "ncclWinGetUserPtr");
    if (address != data.data()) throw std::runtime_error("the address of a window");
    const std::vector<float> input(count, static_cast<float>(c.rank + 1));
    float* const output = data.data() + (c.rank == 0 ? 0 : 3 * count);
    require(ncclAllGather(input.data(), output, count, ncclFloat32, c.comm, nullptr), "ncclAllGather");
    if (output[0] != 1 || output[2 * count - 1] != 2) throw std::runtime_error("the data at an offset of a rank's own");
    require(ncclCommWindowDeregister(c.comm, window), "ncclCommWindowDeregister");
    checkSum(c, c.comm, "after a window has ended");
  });
}

TEST_CASE("ranks that are processes, with options") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Outcomes outcomes = onProcesses(3, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 8 + rank;  // the least one counts
    if (rank == 2) config.maxCTAs = 60000;
    config.commName = "test";
    ncclComm_t comm = nullptr;
    require(ncclCommInitRankConfig(&comm, 3, id, rank, &config), "ncclCommInitRankConfig");
    CpuRank c{rank, 3, comm, {}};
    checkSum(c, comm, "three processes");
    checkMessages(c, 2);
    checkSplits(c);
    checkWindows(c);
    ncclResult_t failure = ncclInProgress;
    require(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError");
    require(failure, "the asynchronous error");
    require(ncclCommFinalize(comm), "ncclCommFinalize");
    if (ncclAllReduce(&rank, &rank, 1, ncclInt32, ncclSum, comm, nullptr) != ncclInvalidUsage)
      throw std::runtime_error("a call after ncclCommFinalize");
    require(ncclCommDestroy(comm), "ncclCommDestroy");
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("an id for several ranks, an old config") {
  ncclUniqueId ids[2];
  for (auto& id : ids) require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, netName);  // what a program compiled against 2.14 has
  config.splitShare = 77;                         // beyond it
  ncclComm_t comms[2];
  require(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 2; ++rank)
    require(ncclCommInitRankScalable(&comms[rank], 2, rank, 2, ids, &config), "ncclCommInitRankScalable");
  require(ncclGroupEnd(), "ncclGroupEnd");
  destroy({comms[0], comms[1]});
}

TEST_CASE("another thread aborts or revokes a communicator in which a call waits") {
  for (const bool isAborted : {true, false}) {
    CAPTURE(isAborted);
    auto comms = initInGroup(2);
    std::atomic<ncclResult_t> result = ncclSuccess;
    std::string message;
    std::thread waiting([&] {
      float value = 1;
      result = ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr);  // the other rank never calls
      message = ncclGetLastError(nullptr);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto start = std::chrono::steady_clock::now();
    CHECK((isAborted ? ncclCommAbort(comms[0]) : ncclCommRevoke(comms[0], 0)) == ncclSuccess);
    waiting.join();
    CHECK(secondsSince(start) < soon);
    CHECK(result == ncclInvalidUsage);  // no other rank is to blame
    CHECK(message.find("this rank has aborted or revoked") != std::string::npos);
    if (!isAborted) CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
    CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  }
  // A new communicator works.
  auto comms = initInGroup(2);
  destroy(comms);
}

TEST_CASE("the survivors of a killed rank notice, and go on without it") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      require(ncclCommInitRank(&comm, 3, id, rank), "ncclCommInitRank");
      CpuRank c{rank, 3, comm, {}};
      checkSum(c, comm, "before the failure");
      // Once the others have the result.
      float value = 1;
      if (rank == 1) {
        for (const int peer : {0, 2}) require(ncclRecv(&value, 1, ncclFloat32, peer, comm, nullptr), "ncclRecv");
        ::raise(SIGKILL);
      }
      require(ncclSend(&value, 1, ncclFloat32, 1, comm, nullptr), "ncclSend");
      const auto start = std::chrono::steady_clock::now();
      if (ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr) != ncclRemoteError)
        throw std::runtime_error("a call with a killed rank must fail with ncclRemoteError");
      if (secondsSince(start) > soon) throw std::runtime_error("the failure was noticed too late");
      ncclResult_t failure = ncclSuccess;
      require(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError");
      if (failure != ncclRemoteError) throw std::runtime_error("the asynchronous error");
      int excluded = 1;
      ncclComm_t rest = nullptr;
      require(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT), "ncclCommShrink");
      checkSum(c, rest, "survivors");
      require(ncclCommAbort(comm), "ncclCommAbort");
      checkSum(c, rest, "survivors after the abort of the parent");
      require(ncclCommDestroy(rest), "ncclCommDestroy");
    });
  }
  CHECK(children[1].wait() == "signal 9");
  CHECK(children[0].wait() == "");
  CHECK(children[2].wait() == "");
}

TEST_CASE("a revoked communicator can be split and destroyed, and not used") {
  onRanks<CpuClient>(2, [](CpuRank& c) {
    require(ncclCommRevoke(c.comm, 0), "ncclCommRevoke");
    float value = 1;
    if (ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, c.comm, nullptr) != ncclInvalidUsage)
      throw std::runtime_error("a call on a revoked communicator");
    ncclResult_t failure = ncclInProgress;
    require(ncclCommGetAsyncError(c.comm, &failure), "ncclCommGetAsyncError");
    require(failure, "the asynchronous error");
    ncclComm_t next = nullptr;
    require(ncclCommSplit(c.comm, 0, c.rank, &next, nullptr), "ncclCommSplit");
    checkSum(c, next, "after a revoke");
    require(ncclCommDestroy(next), "ncclCommDestroy");
    if (ncclCommSplit(c.comm, 0, c.rank, &next, nullptr) != ncclInvalidUsage)
      throw std::runtime_error("a second split of a revoked communicator");
  });
}

TEST_CASE("wrong calls are errors that say why") {
  const auto comms = initInGroup(2);
  float value = 1;
  const ncclComm_t comm = comms[0];
  const auto sum = [&](ncclDataType_t type, ncclRedOp_t op, ncclComm_t c) {
    return ncclAllReduce(&value, &value, 1, type, op, c, nullptr);
  };
  CHECK(sum(ncclFloat32, ncclSum, nullptr) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(nullptr)).find("ncclAllReduce: the communicator is null") != std::string::npos);
  ncclComm_t none = nullptr;
  CHECK(ncclCommInitRank(&none, 2, ncclUniqueId{}, 0) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(nullptr)).find("commId is not what ncclGetUniqueId gives") != std::string::npos);
  CHECK(sum(static_cast<ncclDataType_t>(12), ncclSum, comm) == ncclInvalidArgument);
  CHECK(sum(static_cast<ncclDataType_t>(15), ncclSum, comm) == ncclInvalidArgument);
  CHECK(sum(ncclFloat32, static_cast<ncclRedOp_t>(5), comm) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(comm)).find("ncclRedOpCreatePreMulSum") != std::string::npos);
  CHECK(ncclBroadcast(&value, &value, 1, ncclFloat32, 2, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclSend(&value, 1, ncclFloat32, -1, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(nullptr, &value, 1, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument);
  std::uint64_t foreign[8] = {0x0280028002800280};
  CHECK(sum(ncclFloat32, ncclSum, reinterpret_cast<ncclComm_t>(foreign)) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  // A failed call spoils its group: nothing of it is done, and the end reports it.
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(sum(ncclFloat32, ncclSum, comm) == ncclSuccess);
  CHECK(sum(ncclFloat32, ncclSum, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(value == 1);
  ncclConfig_t config{};
  ncclComm_t made = comm;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&made, 1, id, 0, &config) == ncclInvalidArgument);
  CHECK(made == nullptr);
  CHECK(ncclCommInitRank(&made, 2, id, 2) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&made, 0, id, 0) == ncclInvalidArgument);
  int sink;
  CHECK(ncclMemFree(&sink) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(comm, reinterpret_cast<ncclWindow_t>(&sink)) == ncclInvalidArgument);
  for (int result = 0; result < 10; ++result) {
    CHECK(std::string(ncclGetErrorString(static_cast<ncclResult_t>(result))).size() > 3);
  }
  destroy(comms);
  CHECK(sum(ncclFloat32, ncclSum, comm) == ncclInvalidArgument);  // destroyed
  ncclComm_t next = nullptr;
  CHECK(ncclCommInitAll(&next, 1, nullptr) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);  // its handle names no later one
  CHECK(ncclCommDestroy(next) == ncclSuccess);
}

TEST_CASE("more CTAs than this library has use for are no error") {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = 1000;
  ncclComm_t comm = nullptr;
  require(ncclCommInitRankConfig(&comm, 1, id, 0, &config), "ncclCommInitRankConfig");
  destroy({comm});
}

TEST_CASE("sizes that overflow are refused") {
  const auto comms = initInGroup(1);
  std::array<double, 8> data{};
  for (const std::size_t count : {std::size_t{1} << 61, (std::size_t{1} << 61) + 1, ~std::size_t{0}}) {
    CAPTURE(count);
    CHECK(ncclSend(data.data(), count, ncclFloat64, 0, comms[0], nullptr) == ncclInvalidArgument);
    CHECK(ncclRecv(data.data(), count, ncclFloat64, 0, comms[0], nullptr) == ncclInvalidArgument);
    CHECK(ncclAllReduce(data.data(), data.data(), count, ncclFloat64, ncclSum, comms[0], nullptr) ==
          ncclInvalidArgument);
  }
  CHECK(std::string(ncclGetLastError(nullptr)).find("negative") != std::string::npos);
  destroy(comms);
}

TEST_CASE("a wrong call is refused at once, and nothing of its group is done") {
  const auto comms = initInGroup(1);
  const std::array<float, 2> input{1, 2};
  std::array<float, 2> output{};
  const auto sum = [&](const void* from, void* to) {
    return ncclAllReduce(from, to, 2, ncclFloat32, ncclSum, comms[0], nullptr);
  };
  ncclComm_t made = nullptr;
  ncclWindow_t window = nullptr;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  const std::vector<std::function<ncclResult_t()>> wrongCalls{
      [&] { return sum(nullptr, output.data()); },
      [&] { return sum(input.data(), reinterpret_cast<char*>(output.data()) + 1); },
      [&] { return ncclSend(nullptr, 1, ncclFloat32, 0, comms[0], nullptr); },
      [&] { return ncclRecv(nullptr, 1, ncclFloat32, 0, comms[0], nullptr); },
      [&] { return ncclCommInitRank(&made, 2, id, 7); },
      [&] { return ncclCommWindowRegister(comms[0], nullptr, 4, &window, NCCL_WIN_COLL_SYMMETRIC); },
  };
  for (std::size_t i = 0; i < wrongCalls.size(); ++i) {
    CAPTURE(i);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(sum(input.data(), output.data()) == ncclSuccess);
    CHECK(wrongCalls[i]() == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(output[0] == 0);
  }
  // The end of the group tells the other ranks of a set-up.
  const std::vector<std::function<ncclResult_t()>> wrongSetUps{
      [&] { return ncclCommSplit(comms[0], 0, 0, nullptr, nullptr); },
      [&] { return ncclCommShrink(comms[0], nullptr, 1, &made, nullptr, NCCL_SHRINK_DEFAULT); },
      [&] { return ncclCommGrow(comms[0], 1, nullptr, -1, &made, nullptr); },
  };
  for (std::size_t i = 0; i < wrongSetUps.size(); ++i) {
    CAPTURE(i);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(sum(input.data(), output.data()) == ncclSuccess);
    CHECK(wrongSetUps[i]() == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(output[0] == 0);
  }
  CHECK(sum(input.data(), output.data()) == ncclSuccess);
  CHECK(output[1] == 2);
  destroy(comms);
}

TEST_CASE("a wrong color or config of one rank is an error of all ranks of the split") {
  onRanks<CpuClient>(3, [](CpuRank& c) {
    ncclComm_t part = nullptr;
    for (const bool isColorWrong : {true, false}) {
      ncclConfig_t notInitialised{};
      const bool isWrong = c.rank == 1;
      const auto start = std::chrono::steady_clock::now();
      const ncclResult_t result = ncclCommSplit(c.comm, isWrong && isColorWrong ? -5 : 0, 0, &part,
                                                isWrong && !isColorWrong ? &notInitialised : nullptr);
      if (result != (isWrong ? ncclInvalidArgument : ncclRemoteError) || part != nullptr)
        throw std::runtime_error("the result of a split with a wrong argument is " + std::to_string(result));
      if (secondsSince(start) > soon) throw std::runtime_error("the failure was noticed too late");
    }
    require(ncclCommSplit(c.comm, 0, 0, &part, nullptr), "ncclCommSplit");
    checkSum(c, part, "a split after one that failed");
    require(ncclCommDestroy(part), "ncclCommDestroy");
  });
}

namespace {

// What a program does in destructors of static objects: these run after those of the main thread's own objects.
void endAtExit() {
  const bool isRight = ncclCommDestroy(reinterpret_cast<ncclComm_t>(&endAtExit)) == ncclInvalidArgument &&
                       std::string(ncclGetLastError(nullptr)).find("ncclCommDestroy") != std::string::npos &&
                       ncclGroupStart() == ncclSuccess && ncclGroupEnd() == ncclSuccess &&
                       ncclGroupEnd() == ncclInvalidUsage;
  ::_exit(isRight ? 0 : 3);
}

}  // namespace

TEST_CASE("the API can be used while the process ends") {
  ChildProcess child([] {
    const auto comms = initInGroup(2);
    ncclGetLastError(nullptr);
    std::atexit(endAtExit);
    std::exit(4);
  });
  CHECK(child.wait() == "");
}

TEST_CASE("any sequence of calls") {
  // The same seed on all ranks: the same calls, with arguments from all that are allowed.
  for (const int ranks : {2, 4}) {
    onRanks<CpuClient>(ranks, [](CpuRank& c) {
      std::mt19937 random(7);
      const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
      for (int step = 0; step < 60; ++step) {
        const ncclDataType_t type = allTypes()[below(allTypes().size())];
        const std::size_t count = below(4) == 0 ? below(20000) : below(70);
        const bool inPlace = below(2) == 0;
        switch (below(5)) {
          case 0:
          case 1:
            checkReductions(c, type, static_cast<ncclRedOp_t>(below(5)), count, inPlace);
            break;
          case 2:
            checkMoves(c, type, count, inPlace);
            break;
          case 3:
            checkMessages(c, 1 + static_cast<int>(below(4)));
            break;
          default:
            checkMixedGroup(c);
        }
      }
    });
  }
}

TEST_CASE("many communicators") {
  std::vector<std::vector<ncclComm_t>> all;
  for (int i = 0; i < 10; ++i) all.push_back(initInGroup(2));
  for (const auto& comms : all) destroy(comms);
}

TEST_CASE("the version") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 22809);
}
