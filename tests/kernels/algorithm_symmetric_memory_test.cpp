// Algorithms whose outputs lie in symmetric memory on CPU ranks, one rank per thread.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "algorithm_symmetric_memory_cases.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : memory_(bytes) {}
  std::byte* data() const { return static_cast<std::byte*>(memory_.data()); }
  void write(const Bytes& bytes) { std::copy(bytes.begin(), bytes.end(), begin()); }
  Bytes read(std::size_t bytes, CUstream_st*) const { return {begin(), begin() + bytes}; }
  /// How many hold the memory: registrations do.
  long holders() const { return memory_.memory().use_count(); }

 private:
  unsigned char* begin() const { return static_cast<unsigned char*>(memory_.data()); }
  HostBuffer memory_;
};

void onRanks(int ranks, const std::function<void(const SymmetricRank&)>& body) {
  collective::AlgorithmCollectionBuilder builder;
  const auto collection = builder.buildDefaultAlgorithms(DeviceType::CPU);
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    body({std::make_shared<Communicator>(bootstrap), *bootstrap, bootstrap->getRank(), ranks, DeviceType::CPU,
          collection});
    bootstrap->barrier();
  });
}

/// A folder for the traces of this program, which the environment asks for before anything reads it.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "traces_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    ::setenv("MSCCLPP_NPKIT_DUMP_DIR", name.c_str(), 1);
  }
  ~TraceFolder() { std::filesystem::remove_all(path_); }

  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove(entry);
  }
  std::string text() const {
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::ifstream file(entry.path());
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    return all;
  }

 private:
  std::filesystem::path path_;
};
const TraceFolder traces;

}  // namespace

TEST_CASE("every algorithm that uses symmetric memory") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const SymmetricRank& rank) { checkSymmetricAlgorithms<Buffer>(rank, {1, 37, 5003}); });
  }
}

TEST_CASE("the same bits as those of Collectives") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    onRanks(ranks, [](const SymmetricRank& rank) { checkSameAsCollectives<Buffer>(rank); });
  }
}

TEST_CASE("memory of which a later call does not say that it is symmetric") {
  for (const int ranks : {2, 3}) onRanks(ranks, [](const SymmetricRank& rank) { checkOtherOffsets<Buffer>(rank); });
}

TEST_CASE("which algorithm runs") {
  // What MSCCLPP_ALGO selects (meson.build), and its name in a trace.
  struct Selected {
    std::string collective;
    std::string inTrace;
  };
  const std::vector<Selected> selected{{"allreduce", "direct"},
                                       {"allgather", "all_gather direct"},
                                       {"alltoall", "all_to_all bulk"},
                                       {"broadcast", "broadcast copy_engine"}};
  for (const Selected& each : selected) {
    const std::string& collective = each.collective;
    for (const bool symmetric : {true, false}) {
      CAPTURE(collective);
      CAPTURE(symmetric);
      traces.clear();
      onRanks(2, [&](const SymmetricRank& rank) {
        Buffer source(8192);
        Buffer target(8192);
        const CollectiveCall call{
            .collective = typeOf(collective), .input = source.data(), .output = target.data(), .count = 1000};
        CHECK(executeCall(*rank.find(collective, "mscclpp_" + collective), rank.communicator, 2, call, symmetric) ==
              CommResult::CommSuccess);
      });
      CHECK((traces.text().find('"' + each.inTrace + '"') != std::string::npos) == symmetric);
      CHECK((traces.text().find("pipelined\"") != std::string::npos) == !symmetric);
    }
  }
}

TEST_CASE("an allocation is registered once, where an algorithm needs it, until reset()") {
  onRanks(2, [](const SymmetricRank& rank) {
    Buffer buffer(std::size_t{1} << 20);
    Buffer other(std::size_t{1} << 20);
    const auto execute = [&](const std::string& collective, const Buffer& output, std::size_t offset, bool symmetric) {
      CollectiveCall call{.collective = typeOf(collective),
                          .input = other.data() + 4096,
                          .output = output.data() + offset,
                          .count = 100};
      CHECK(executeCall(*rank.find(collective, "mscclpp_" + collective), rank.communicator, 2, call, symmetric) ==
            CommResult::CommSuccess);
    };
    const long none = buffer.holders();
    execute("allgather", buffer, 0, false);
    execute("reducescatter", buffer, 0, true);  // which has no algorithm that needs it
    CHECK(buffer.holders() == none);
    execute("allgather", buffer, 0, true);
    const long registered = buffer.holders();
    CHECK(registered > none);
    execute("allgather", buffer, 5000, true);
    execute("broadcast", buffer, 0, true);
    CHECK(buffer.holders() == registered);
    execute("broadcast", other, 0, true);
    CHECK(other.holders() == registered);
    rank.bootstrap.barrier();
    if (rank.rank == 0) rank.find("reduce", "mscclpp_reduce")->reset();
    rank.bootstrap.barrier();
    CHECK(buffer.holders() == none);
    CHECK(other.holders() == none);
    execute("allgather", buffer, 0, true);
    CHECK(buffer.holders() == registered);
  });
}

TEST_CASE("memory that the peers cannot map, and allocations of different sizes") {
  onRanks(2, [](const SymmetricRank& rank) {
    std::vector<float> plain(200);
    Buffer source(4096);
    Buffer target(rank.rank == 0 ? 4096 : 8192);
    for (float* const output : {plain.data(), reinterpret_cast<float*>(target.data())}) {
      const CollectiveCall call{
          .collective = CollectiveType::AllGather, .input = source.data(), .output = output, .count = 100};
      CHECK(executeCall(*rank.find("allgather", "mscclpp_allgather"), rank.communicator, 2, call, true) ==
            CommResult::CommInvalidArgument);
      CHECK(executeCall(*rank.find("allgather", "mscclpp_allgather"), rank.communicator, 2, call) ==
            CommResult::CommSuccess);
    }
  });
}
