// What an abort of one communicator means for its peers, and for the communicators beside it: more than NCCL promises.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/host/ranks.hpp"
#include "tests/nccl/client_cases.hpp"

namespace mscclpp::test {

/// Waits in `comm` for a rank that aborts it, and for no longer than that takes.
template <class Backend>
void requireRemoteError(const Client<Backend>& c, ncclComm_t comm) {
  auto data = c.poisoned(400);
  const auto start = std::chrono::steady_clock::now();
  // A GPU rank learns it later.
  static_cast<void>(ncclAllReduce(data.data(), data.data(), 100, ncclFloat32, ncclSum, comm, c.stream.get()));
  c.stream.synchronize();
  if (secondsSince(start) > soon) throw std::runtime_error("the abort was noticed too late");
  ncclResult_t failure = ncclSuccess;
  require(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError");
  if (failure != ncclRemoteError) {
    throw std::runtime_error("the asynchronous error after the abort of a peer is " + std::to_string(failure));
  }
}

/// A rank aborts one of two communicators that were split from one; the others wait for it there.
template <class Backend>
void checkAbortOfPart(Client<Backend>& c) {
  ncclComm_t aborted = nullptr, other = nullptr;
  require(ncclCommSplit(c.comm, 0, -c.rank, &aborted, nullptr), "ncclCommSplit");
  require(ncclCommSplit(c.comm, 0, c.rank, &other, nullptr), "ncclCommSplit");
  checkSum(c, aborted, "a part");
  if (c.rank == c.ranks - 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    require(ncclCommAbort(aborted), "ncclCommAbort");
  } else {
    requireRemoteError(c, aborted);
    require(ncclCommAbort(aborted), "ncclCommAbort");
  }
  checkSum(c, other, "another part");
  checkSum(c, c.comm, "the parent");
  ncclComm_t next = nullptr;
  require(ncclCommSplit(c.comm, 0, c.rank, &next, nullptr), "ncclCommSplit");
  checkSum(c, next, "a new part");
  for (const ncclComm_t comm : {next, other}) require(ncclCommDestroy(comm), "ncclCommDestroy");
}

}  // namespace mscclpp::test
