// Communicators of CPU ranks that others join.
#include <doctest/doctest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/host/ranks.hpp"
#include "tests/nccl/cpu_client.hpp"

using namespace mscclpp::test;

namespace {

using CpuRank = Client<CpuClient>;

void requireRank(ncclComm_t comm, int rank, int ranks) {
  int ownRank = -1, number = 0;
  require(ncclCommUserRank(comm, &ownRank), "ncclCommUserRank");
  require(ncclCommCount(comm, &number), "ncclCommCount");
  if (ownRank != rank || number != ranks) throw std::runtime_error("wrong rank after a growth");
}

/// The ids of several growths, which rank `root` passes on.
struct Ids {
  std::vector<std::promise<ncclUniqueId>> promises;
  std::vector<std::shared_future<ncclUniqueId>> ids;
  explicit Ids(std::size_t count) : promises(count) {
    for (auto& promise : promises) ids.push_back(promise.get_future().share());
  }
};

}  // namespace

TEST_CASE("ranks join, several times, from a communicator and from what has grown from it") {
  constexpr int first = 2, all = 5, root = 1;
  // Two growths of the first communicator, and one of what has grown.
  Ids ids(3);
  std::vector<std::string> failures(all);
  std::vector<ncclComm_t> begun(first);
  require(ncclCommInitAll(begun.data(), first, nullptr), "ncclCommInitAll");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < all; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        CpuRank c{rank, all, nullptr, {}};
        std::vector<ncclComm_t> comms;
        const auto grow = [&](std::size_t number, ncclComm_t from, int members) {
          ncclComm_t grown = nullptr;
          if (from == nullptr) {
            const ncclUniqueId id = ids.ids[number].get();
            require(ncclCommGrow(nullptr, members, &id, rank, &grown, nullptr), "ncclCommGrow of a new rank");
          } else if (rank == root) {
            ncclUniqueId id;
            require(ncclCommGetUniqueId(from, &id), "ncclCommGetUniqueId");
            ids.promises[number].set_value(id);
            require(ncclCommGrow(from, members, &id, -1, &grown, nullptr), "ncclCommGrow of the root");
          } else {
            require(ncclCommGrow(from, members, nullptr, -1, &grown, nullptr), "ncclCommGrow");
          }
          requireRank(grown, rank, members);
          checkSum(c, grown, "a grown communicator");
          comms.push_back(grown);
          return grown;
        };
        const ncclComm_t own = rank < first ? begun[static_cast<std::size_t>(rank)] : nullptr;
        ncclComm_t four = nullptr;
        if (rank < 4) four = grow(0, own, 4);
        if (rank < 3) grow(1, own, 3);
        grow(2, four, all);
        if (own != nullptr) {
          checkSum(c, own, "a communicator that has grown");
          comms.push_back(own);
        }
        for (const ncclComm_t comm : comms) {
          checkSum(c, comm, "every communicator");
        }
        for (const ncclComm_t comm : comms) require(ncclCommDestroy(comm), "ncclCommDestroy");
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) CHECK(failure == "");
}

TEST_CASE("wrong growths of one rank are errors, and each growth has an id of its own") {
  ncclComm_t comm = nullptr, grown = comm;
  require(ncclCommInitAll(&comm, 1, nullptr), "ncclCommInitAll");
  ncclUniqueId id;
  CHECK(ncclCommGetUniqueId(comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommGetUniqueId(nullptr, &id) == ncclInvalidArgument);
  CHECK(ncclCommGetUniqueId(comm, &id) == ncclSuccess);
  CHECK(ncclCommGrow(comm, 1, &id, -1, &grown, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommGrow(nullptr, 2, nullptr, 1, &grown, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommGrow(comm, 2, &id, -1, &grown, nullptr) == ncclInvalidArgument);  // that of the growth before
  CHECK(ncclCommGetUniqueId(comm, &id) == ncclSuccess);
  // One thread has both ranks.
  ncclComm_t joined = nullptr;
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclCommGrow(comm, 2, &id, -1, &grown, nullptr), "ncclCommGrow");
  require(ncclCommGrow(nullptr, 2, &id, 1, &joined, nullptr), "ncclCommGrow");
  require(ncclGroupEnd(), "ncclGroupEnd");
  requireRank(grown, 0, 2);
  requireRank(joined, 1, 2);
  for (const ncclComm_t each : {grown, joined, comm}) CHECK(ncclCommDestroy(each) == ncclSuccess);
}
