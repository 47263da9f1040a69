// The client on GPUs, one for each rank. It is linked to the library with NCCL's name, so that it runs on NCCL too:
//   LD_LIBRARY_PATH=<folder of NCCL's libnccl.so.2> tests/test_nccl_client_gpu
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tests/host/ranks.hpp"
#include "tests/nccl/gpu_client.hpp"
#include "tests/nccl/gpu_graph.hpp"

using namespace mscclpp::test;

namespace {

using GpuRank = Client<GpuClient>;

}  // namespace

TEST_CASE("every reduction, type, operator and form") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    const bool isPowerOfTwo = (c.ranks & (c.ranks - 1)) == 0;
    for (const ncclDataType_t type : allTypes()) {
      for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        if (op == ncclAvg && !isPowerOfTwo) continue;  // not exact
        for (const std::size_t count : {0, 1, 257, 20'000}) {
          for (const bool inPlace : {false, true}) checkReductions(c, type, op, count, inPlace);
        }
      }
    }
  });
}

TEST_CASE("every collective that moves data") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    for (const ncclDataType_t type : {ncclInt8, ncclBfloat16, ncclFloat32, ncclFloat64}) {
      for (const std::size_t count : {0, 1, 1000}) {
        for (const bool inPlace : {false, true}) checkMoves(c, type, count, inPlace);
      }
    }
    for (const bool inPlace : {false, true}) checkMoves(c, ncclFloat64, 1'500'000, inPlace);  // without packets
  });
}

// Each by itself: while a rank frees or allocates GPU memory, the kernels of the others wait for it.
TEST_CASE("messages of a group") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    for (const int messages : {1, 5}) checkMessages(c, messages);
  });
}
TEST_CASE("operators with a factor") {
  onRanks<GpuClient>(gpuRanks(), checkOperators<GpuClient>);
}
TEST_CASE("windows") {
  onRanks<GpuClient>(gpuRanks(), checkWindows<GpuClient>);
}
TEST_CASE("a group of collectives that move data") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    for (const std::size_t count : {0, 1000, 70'000}) {  // the last ones by kernels of their own
      for (const bool inPlace : {false, true}) checkMoves(c, ncclInt8, count, inPlace, true);
    }
  });
}
TEST_CASE("a group of collectives and messages") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    checkMixedGroup(c);
    checkUnlikeGroups(c);
  });
}
TEST_CASE("a group of reductions") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    for (const std::size_t longest : {100, 30'001, 100'000}) checkReductionGroup(c, longest);
  });
}
TEST_CASE("splits") {
  onRanks<GpuClient>(gpuRanks(), checkSplits<GpuClient>);
}
TEST_CASE("shrinks") {
  onRanks<GpuClient>(gpuRanks(), checkShrink<GpuClient>);
}

TEST_CASE("graphs replay calls, between eager calls and on several streams") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    constexpr std::size_t count = 5000;
    auto input = c.make(encode(ncclFloat32, valuesOf(c.rank, 0, count)));
    auto output = c.poisoned(count * 4);
    auto received = c.poisoned(count * 4);
    const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
    const Graph graph(c.stream.get(), [&] {
      require(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, ncclSum, c.comm, c.stream.get()), "sum");
      require(ncclGroupStart(), "ncclGroupStart");
      require(ncclSend(output.data(), count, ncclFloat32, next, c.comm, c.stream.get()), "ncclSend");
      require(ncclRecv(received.data(), count, ncclFloat32, previous, c.comm, c.stream.get()), "ncclRecv");
      require(ncclGroupEnd(), "ncclGroupEnd");
    });
    const Bytes sum = encode(ncclFloat32, reducedValues(ncclSum, false, c.ranks, 0, count, 0));
    GpuClient::Stream other;
    for (int round = 0; round < 20; ++round) {
      requireCuda(cudaMemsetAsync(output.data(), 0xa5, count * 4, c.stream.get()), "cudaMemsetAsync");
      requireCuda(cudaMemsetAsync(received.data(), 0xa5, count * 4, c.stream.get()), "cudaMemsetAsync");
      graph.launch(c.stream.get());
      auto eager = c.poisoned(count * 4);
      other.waitFor(c.stream);
      require(ncclAllReduce(input.data(), eager.data(), count, ncclFloat32, ncclSum, c.comm, other.get()), "sum");
      other.synchronize();
      requireSame(eager.read(), sum, [] { return "an eager call on another stream"; });
      requireSame(c.read(output), sum, [] { return "an all-reduce of a graph"; });
      requireSame(c.read(received), sum, [] { return "a message of a graph"; });
    }
  });
}

TEST_CASE("messages of a group on several streams wait for what is before them") {
  onRanks<GpuClient>(gpuRanks(), [](GpuRank& c) {
    constexpr std::size_t count = 1000000;
    GpuClient::Stream sending, receiving;
    auto input = c.poisoned(count * 4);
    auto output = c.poisoned(count * 4);
    const Bytes wanted(count * 4, 3);
    const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
    requireCuda(cudaMemsetAsync(input.data(), 3, count * 4, sending.get()), "cudaMemsetAsync");
    require(ncclGroupStart(), "ncclGroupStart");
    require(ncclRecv(output.data(), count, ncclFloat32, previous, c.comm, receiving.get()), "ncclRecv");
    require(ncclSend(input.data(), count, ncclFloat32, next, c.comm, sending.get()), "ncclSend");
    require(ncclGroupEnd(), "ncclGroupEnd");
    requireCuda(cudaMemsetAsync(input.data(), 4, count * 4, sending.get()), "cudaMemsetAsync");
    receiving.synchronize();
    requireSame(output.read(), wanted, [] { return "a message on two streams"; });
    sending.synchronize();
  });
}

TEST_CASE("one thread has all GPUs, in groups") {
  const int ranks = gpuRanks();
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < ranks; ++rank) {
    GpuClient::setDevice(rank);
    require(ncclCommInitRank(&comms[rank], ranks, id, rank), "ncclCommInitRank");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  std::vector<GpuRank> clients;
  std::vector<GpuClient::Memory> inputs, outputs;
  for (int rank = 0; rank < ranks; ++rank) {
    GpuClient::setDevice(rank);
    clients.push_back({rank, ranks, comms[rank], {}});
    inputs.push_back(clients.back().make(encode(ncclFloat32, valuesOf(rank, 0, 1000))));
    outputs.push_back(clients.back().poisoned(4000));
    int device = -1;
    CHECK(ncclCommCuDevice(comms[rank], &device) == ncclSuccess);
    CHECK(device == rank);
  }
  GpuClient::setDevice(0);  // calls find the device of their communicator by themselves
  require(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t rank = 0; rank < clients.size(); ++rank) {
    require(ncclAllReduce(inputs[rank].data(), outputs[rank].data(), 1000, ncclFloat32, ncclSum, comms[rank],
                          clients[rank].stream.get()),
            "ncclAllReduce");
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  int device = -1;
  requireCuda(cudaGetDevice(&device), "cudaGetDevice");
  CHECK(device == 0);
  for (std::size_t rank = 0; rank < clients.size(); ++rank) {
    CHECK(clients[rank].read(outputs[rank]) == encode(ncclFloat32, reducedValues(ncclSum, false, ranks, 0, 1000, 0)));
    CHECK(ncclCommDestroy(comms[rank]) == ncclSuccess);
  }
}

TEST_CASE("another thread aborts a kernel that waits, and a new communicator works within seconds") {
  const int ranks = gpuRanks();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclCommInitAll(comms.data(), ranks, nullptr), "ncclCommInitAll");
  GpuClient::setDevice(0);
  const GpuRank c{0, ranks, comms[0], {}};
  auto buffer = c.poisoned(4000);
  require(ncclAllReduce(buffer.data(), buffer.data(), 1000, ncclFloat32, ncclSum, comms[0], c.stream.get()), "sum");
  CHECK(cudaStreamQuery(c.stream.get()) == cudaErrorNotReady);  // the other ranks never call
  const auto start = std::chrono::steady_clock::now();
  std::thread([&] {
    for (const ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  }).join();
  c.stream.synchronize();
  CHECK(secondsSince(start) < 2);
  onRanks<GpuClient>(ranks, [](GpuRank& client) { checkSum(client, client.comm, "after an abort"); });
}

TEST_CASE("the memory of communicators is given back") {
  const auto freeBytes = [] {
    std::size_t free = 0, total = 0;
    requireCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  };
  GpuClient::setDevice(0);
  const int ranks = gpuRanks();
  const auto make = [&](int splits) {
    std::vector<ncclComm_t> first(static_cast<std::size_t>(ranks));
    require(ncclCommInitAll(first.data(), ranks, nullptr), "ncclCommInitAll");
    std::vector<ncclComm_t> all = first;
    for (int i = 0; i < splits; ++i) {
      std::vector<ncclComm_t> next(first.size());
      require(ncclGroupStart(), "ncclGroupStart");
      for (std::size_t rank = 0; rank < first.size(); ++rank)
        require(ncclCommSplit(first[rank], 0, 0, &next[rank], nullptr), "ncclCommSplit");
      require(ncclGroupEnd(), "ncclGroupEnd");
      all.insert(all.end(), next.begin(), next.end());
    }
    return all;
  };
  const auto destroy = [](const std::vector<ncclComm_t>& comms) {
    for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  };
  destroy(make(0));  // what the driver keeps is there from now on
  const std::size_t before = freeBytes();
  const auto comms = make(9);
  MESSAGE("ten communicators take " << (before - freeBytes()) / 1048576 << " MiB");
  destroy(comms);
  constexpr std::size_t slack = std::size_t{32} << 20;  // the allocations of others, and granularity
  CHECK(freeBytes() + slack >= before);
}
