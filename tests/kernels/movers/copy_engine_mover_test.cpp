// CopyEngineMover on CPU ranks, as threads and as processes.
#include "copy_engine_mover_cases.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

class HostMemory {
 public:
  static constexpr DeviceType type = DeviceType::CPU;
  explicit HostMemory(std::size_t bytes) : buffer_(bytes) {}
  char* data() const { return static_cast<char*>(buffer_.data()); }
  std::size_t bytes() const { return buffer_.bytes(); }
  void write(std::size_t offset, const MovedBytes& from) { std::copy(from.begin(), from.end(), data() + offset); }
  MovedBytes read() const { return {data(), data() + bytes()}; }
  static void synchronize(CUstream_st* /*stream*/) {}

 private:
  HostBuffer buffer_;
};

void moveEverything(std::shared_ptr<Bootstrap> bootstrap) {
  Communicator communicator(bootstrap);
  MoveTester<HostMemory> whole(communicator, {}, 20'000);
  // Many ranks on few cores take long.
  const bool areMany = bootstrap->getNranks() > 4;
  whole.checkAll(areMany ? std::vector<std::size_t>{13, 20'000} : std::vector<std::size_t>{1, 0, 13, 20'000}, nullptr);
  MoveTester<HostMemory> inPieces(communicator, {.permutationPieceBytes = 1000, .broadcastPieceBytes = 700}, 5000);
  inPieces.checkAll(areMany ? std::vector<std::size_t>{2999} : std::vector<std::size_t>{1000, 1001, 4999}, nullptr);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("copy engine mover: every collective, size and root, ranks as threads") {
  for (const int ranks : thinned({1, 2, 3, 4, 5, 8}, {2, 3, 5})) runAsThreads(ranks, moveEverything);
}
TEST_CASE("copy engine mover: every collective, size and root, ranks as processes") {
  runAsProcesses(3, "copy engine mover: one process moves everything");
}
TEST_CASE("copy engine mover: one process moves everything" * doctest::skip()) {
  moveEverything(bootstrapOfProcess());
}

TEST_CASE("copy engine mover: a rank that does not call") {
  const std::string timeout = "MSCCLPP_WAIT_TIMEOUT=1";
  runAsProcesses(3, "copy engine mover: one process waits for another", hangLimit, -1, {timeout, timeout, timeout});
}
TEST_CASE("copy engine mover: one process waits for another" * doctest::skip()) {
  failBecauseRankOneIsLate<HostMemory>(bootstrapOfProcess());
}

TEST_CASE("copy engine mover: wrong options are an error on all ranks") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    const bool isFirst = bootstrap->getRank() == 0;
    expectInvalidUsage("the CopyEngineOptions::broadcastPieceBytes is 5 on rank 0, but 6 on rank 1", [&] {
      CopyEngineMover(communicator, DeviceType::CPU, {.broadcastPieceBytes = isFirst ? std::size_t{5} : 6});
    });
    expectInvalidUsage("copiesPerTransfer is 9; it must be 1 to 8",
                       [&] { CopyEngineMover(communicator, DeviceType::CPU, {.copiesPerTransfer = 9}); });
    expectInvalidUsage("the device type must be", [&] { CopyEngineMover(communicator, DeviceType::Unknown); });
    // Each rank copies as it likes.
    CopyEngineMover(communicator, DeviceType::CPU, {.copiesPerTransfer = isFirst ? 1 : 2});
  });
}

TEST_CASE("copy engine mover: wrong calls are rejected, and later calls succeed") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    MoveTester<HostMemory> tester(communicator, {}, 100);
    CopyEngineMover& mover = tester.mover();
    const HostMemory memory(400);
    Window<> outputs{};
    for (int rank = 0; rank < 2; ++rank) outputs.base[rank] = reinterpret_cast<std::byte*>(memory.data());
    char input[100] = {};
    Window<> withoutPeer = outputs;
    withoutPeer.base[1 - bootstrap->getRank()] = nullptr;
    expectInvalidUsage("all_gather: the input is null", [&] { mover.allGather(nullptr, outputs, 10); });
    expectInvalidUsage("is null", [&] { mover.allGather(input, withoutPeer, 10); });
    expectInvalidUsage("broadcast: the root is 2, and the ranks are 0 to 1",
                       [&] { mover.broadcast(input, outputs, 10, 2); });
    expectInvalidUsage("the root is -1", [&] { mover.scatter(input, outputs, 10, -1); });
    expectInvalidUsage("was it a negative number?",
                       [&] { mover.allGather(input, outputs, static_cast<std::size_t>(-8)); });
    expectInvalidUsage("all_to_all: the input overlaps", [&] { mover.allToAll(memory.data() + 15, outputs, 10); });
    expectInvalidUsage("all_reduce: it is not a copy",
                       [&] { mover.move(CollectiveType::AllReduce, input, outputs, 10); });
    CHECK(CopyEngineMover::supports(CollectiveType::Gather));
    CHECK_FALSE(CopyEngineMover::supports(CollectiveType::SendReceive));
    // No bytes: returns at once, whether other ranks call or not.
    if (bootstrap->getRank() == 0) mover.allGather(nullptr, Window<>{}, 0);
    mover.check();
    tester.check({CollectiveType::AllGather, 100, 0, false}, nullptr);
    // Ranks without a part in a call pass null.
    HostMemory own(64);
    const RegisteredBuffer registered(communicator, own.data(), own.bytes());
    own.write(0, MovedBytes(64, bootstrap->getRank() == 0 ? 7 : 8));
    mover.broadcast(bootstrap->getRank() == 0 ? own.data() : nullptr, registered.window(), 64, 0);
    CHECK(own.read() == MovedBytes(64, 7));
    bootstrap->barrier();
  });
}
