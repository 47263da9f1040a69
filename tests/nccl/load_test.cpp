// A program that was built for NCCL and finds this library in its place, on a machine without GPUs: all names are there
// when it starts (LD_BIND_NOW), and every function answers a wrong call with an error.
#include <doctest/doctest.h>

#include <string>

#include "tests/nccl/api.hpp"

TEST_CASE("every function answers a null communicator and null pointers with an error") {
  const ncclComm_t none = nullptr;
  float value = 1;
  CHECK(ncclGetVersion(nullptr) == ncclInvalidArgument);
  CHECK(ncclGetUniqueId(nullptr) == ncclInvalidArgument);
  const ncclUniqueId id{};
  CHECK(ncclCommInitRank(nullptr, 1, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRankConfig(nullptr, 1, id, 0, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommInitRankScalable(nullptr, 1, 0, 1, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(nullptr, 1, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommSplit(none, 0, 0, nullptr, nullptr) == ncclInvalidArgument);
  ncclComm_t made = nullptr;
  CHECK(ncclCommSplit(none, 0, 0, &made, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommShrink(none, nullptr, 0, &made, nullptr, 0) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(none) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(none) == ncclSuccess);
  CHECK(ncclCommAbort(none) == ncclSuccess);
  CHECK(ncclCommRevoke(none, 0) == ncclInvalidArgument);
  int number = 0;
  CHECK(ncclCommCount(none, &number) == ncclInvalidArgument);
  CHECK(ncclCommCuDevice(none, &number) == ncclInvalidArgument);
  CHECK(ncclCommUserRank(none, &number) == ncclInvalidArgument);
  ncclResult_t result = ncclSuccess;
  CHECK(ncclCommGetAsyncError(none, &result) == ncclInvalidArgument);
  CHECK(ncclMemAlloc(nullptr, 1) == ncclInvalidArgument);
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
  void* handle = nullptr;
  CHECK(ncclCommRegister(none, &value, sizeof value, &handle) == ncclInvalidArgument);
  CHECK(ncclCommDeregister(none, nullptr) == ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(none, &value, sizeof value, &window, 0) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(none, nullptr) == ncclSuccess);
  ncclRedOp_t op = ncclSum;
  CHECK(ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, ncclScalarHostImmediate, none) == ncclInvalidArgument);
  CHECK(ncclRedOpDestroy(op, none) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclReduceScatter(&value, &value, 1, ncclFloat32, ncclSum, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclReduce(&value, &value, 1, ncclFloat32, ncclSum, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllGather(&value, &value, 1, ncclFloat32, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclAlltoAll(&value, &value, 1, ncclFloat32, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclBroadcast(&value, &value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclBcast(&value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclGather(&value, &value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclScatter(&value, &value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclSend(&value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclRecv(&value, 1, ncclFloat32, 0, none, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupSimulateEnd(nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("without a GPU, a communicator is an error that says so") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, 1, id, 0);
  if (result == ncclSuccess) {  // there is one
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  } else {
    CHECK(comm == nullptr);
    CHECK(std::string(ncclGetLastError(nullptr)).find("ncclCommInitRank: ") == 0);
  }
}
