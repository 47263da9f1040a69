// Communicators of ranks on several hosts: two processes that claim to be on different ones, and a library that stands
// in for NCCL.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/host/spawned_ranks.hpp"
#include "tests/nccl/cpu_client.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

const std::vector<std::string> hosts{"MSCCLPP_HOSTID=first", "MSCCLPP_HOSTID=second"};

ncclUniqueId shareId(Bootstrap& bootstrap) {
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(bootstrap.getNranks()));
  if (bootstrap.getRank() == 0) require(ncclGetUniqueId(&ids[0]), "ncclGetUniqueId");
  bootstrap.allGather(ids.data(), sizeof(ncclUniqueId));
  return ids[0];
}

}  // namespace

TEST_CASE("calls of ranks on two hosts are forwarded, those of one host are not") {
  runAsProcesses(2, "a rank on its own host", hangLimit, -1, hosts);
}

TEST_CASE("a rank on its own host" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  const int rank = bootstrap->getRank();
  const ncclUniqueId id = shareId(*bootstrap);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = 5;
  ncclComm_t comm = nullptr;
  require(ncclCommInitRankConfig(&comm, 2, id, rank, &config), "ncclCommInitRankConfig");
  float value = 0;
  require(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr), "ncclAllReduce");
  CHECK(value == 2);
  ncclRedOp_t op = ncclSum;
  require(ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, ncclScalarHostImmediate, comm), "create");
  require(ncclRedOpDestroy(op, comm), "destroy");
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclSend(&value, 1, ncclFloat32, 1, comm, nullptr), "ncclSend");
  require(ncclRecv(&value, 1, ncclFloat32, 0, comm, nullptr), "ncclRecv");
  require(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(ncclSend(&value, 1, ncclFloat32, 0, comm, nullptr) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(nullptr)).find("an error of the stand-in: its last error") != std::string::npos);
  ncclResult_t failure = ncclSuccess;
  require(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError");
  CHECK(failure == ncclSystemError);
  // Each rank alone is on one host.
  ncclComm_t alone = nullptr;
  require(ncclCommSplit(comm, rank, 0, &alone, nullptr), "ncclCommSplit");
  const CpuClient::Stream stream;
  const Client<CpuClient> client{rank, 2, alone, stream};
  checkSum(client, alone, "a native communicator beside a forwarded one");
  require(ncclCommDestroy(alone), "ncclCommDestroy");
  require(ncclCommFinalize(comm), "ncclCommFinalize");
  CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidUsage);
  CHECK(ncclCommFinalize(comm) == ncclInvalidUsage);
  require(ncclCommDestroy(comm), "ncclCommDestroy");

  void* const library = ::dlopen(std::getenv("MSCCLPP_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  const auto calls = reinterpret_cast<const char* (*)()>(::dlsym(library, "standInCalls"));
  const std::string wanted =
      "InitRank AllReduce CreateOp DestroyOp Send(group) Recv(group) GetAsyncError Finalize Destroy";
  CHECK(std::string(calls()) == (rank == 0 ? "GetUniqueId " : "") + wanted);
}

TEST_CASE("without NCCL, ranks on two hosts are an error that says what to set") {
  runAsProcesses(2, "a rank on its own host, without NCCL", hangLimit, -1, hosts);
}

TEST_CASE("a rank on its own host, without NCCL" * doctest::skip()) {
  ::unsetenv("MSCCLPP_NCCL_LIB_PATH");
  const auto bootstrap = bootstrapOfProcess();
  const ncclUniqueId id = shareId(*bootstrap);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, 2, id, bootstrap->getRank());
  CHECK((result == ncclInvalidUsage || result == ncclRemoteError));
  CHECK(comm == nullptr);
  CHECK(std::string(ncclGetLastError(nullptr)).find("MSCCLPP_NCCL_LIB_PATH") != std::string::npos);
}
