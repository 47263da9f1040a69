// What a user sees of a running program: the record of its calls, versions, parameters, and options of single calls.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/nccl/newer_functions.hpp"
#include "tests/host/process_resources.hpp"

namespace {

/// Set before the library reads the environment, which it does once.
const std::string& dumpFolder() {
  static const std::string folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "mscclpp_calls_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    ::setenv("MSCCLPP_NCCL_DUMP_DIR", name.c_str(), 1);
    ::setenv("MSCCLPP_NCCL_VERSION", "23203", 1);
    ::setenv("NCCL_MAX_CTAS", "4", 1);
    return name;
  }();
  return folder;
}

std::vector<ncclComm_t> makeComms(int ranks) {
  dumpFolder();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  REQUIRE(ncclCommInitAll(comms.data(), ranks, nullptr) == ncclSuccess);
  return comms;
}

std::vector<std::string> linesOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("an aborted communicator leaves a record of its calls") {
  const auto comms = makeComms(1);
  float value = 1;
  for (int i = 0; i < 1005; ++i) {
    REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclMax, comms[0], nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclSend(&value, 1, ncclInt32, 0, comms[0], nullptr) == ncclSuccess);
  REQUIRE(ncclRecv(&value, 1, ncclInt32, 0, comms[0], nullptr) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(ncclCommAbort(comms[0]) == ncclSuccess);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dumpFolder())) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename().string().starts_with("nccl_calls_rank_0_process_"));
  const auto lines = linesOf(files[0]);
  REQUIRE(lines.size() == 1001);
  CHECK(lines[0] == "rank 0 of 1: aborted");
  CHECK(lines[1].starts_with("7 "));
  CHECK(lines[1].find("ncclAllReduce count 1 float op max") != std::string::npos);
  CHECK(lines[999].find("ncclSend count 1 int32 peer 0") != std::string::npos);
  CHECK(lines[1000].starts_with("1006 "));
  CHECK(lines[1000].find("ncclRecv count 1 int32 peer 0") != std::string::npos);
  std::filesystem::remove_all(dumpFolder());
}

TEST_CASE("the version that is asked for") {
  dumpFolder();
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 23203);
}

TEST_CASE("parameters") {
  dumpFolder();
  const char** keys = nullptr;
  int count = 0;
  REQUIRE(ncclParamGetAllParameterKeys(&keys, &count) == ncclSuccess);
  CHECK(count >= 9);
  ncclParamHandle_t handle = nullptr;
  REQUIRE(ncclParamBind(&handle, "NCCL_MAX_CTAS") == ncclSuccess);
  std::int32_t number = 0;
  CHECK(ncclParamGetI32(handle, &number) == ncclSuccess);
  CHECK(number == 4);
  const char* text = nullptr;
  CHECK(ncclParamGetStr(handle, &text) == ncclSuccess);
  CHECK(std::string(text) == "4");
  char bytes[8] = {};
  int length = 0;
  CHECK(ncclParamGet(handle, bytes, sizeof bytes, &length) == ncclSuccess);
  CHECK(std::string(bytes, static_cast<std::size_t>(length)) == "4");
  CHECK(ncclParamGet(handle, bytes, 0, &length) == ncclInvalidArgument);
  CHECK(ncclParamGetParameter("MSCCLPP_NCCL_VERSION", &text, &length) == ncclSuccess);
  CHECK(std::string(text) == "23203");
  std::int8_t small = 0;
  REQUIRE(ncclParamBind(&handle, "MSCCLPP_NCCL_VERSION") == ncclSuccess);
  CHECK(ncclParamGetI8(handle, &small) == ncclInvalidArgument);  // too large
  CHECK(ncclParamBind(&handle, "NCCL_NO_SUCH_THING") == ncclInvalidArgument);
  CHECK(ncclParamGetI32(reinterpret_cast<ncclParamHandle_t>(&small), &number) == ncclInvalidArgument);
}

TEST_CASE("options of a call") {
  const auto comms = makeComms(2);
  ncclCollConfig_t config{};
  config.size = sizeof config;
  config.magic = mscclpp::nccl::configMagic;
  config.forceAlgSelection = 1;
  const auto sum = [&] {
    float values[2] = {1, 2};
    ncclResult_t results[2];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] =
            ncclAllReduceConfig(&values[rank], &values[rank], 1, ncclFloat32, ncclSum, comms[rank], nullptr, &config);
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(results[0] == results[1]);
    if (results[0] == ncclSuccess) CHECK(values[0] == 3);
    return results[0];
  };
  CHECK(sum() == ncclSuccess);
  config.algSelection = "pipelined";
  CHECK(sum() == ncclSuccess);
  config.algSelection = "no_such_algorithm";
  CHECK(sum() == ncclInvalidArgument);
  config.forceAlgSelection = 0;
  CHECK(sum() == ncclSuccess);
  config.magic = 0;
  CHECK(sum() == ncclInvalidArgument);
  for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("the memory of a communicator") {
  const auto alone = makeComms(1), four = makeComms(4);
  const auto statistic = [](ncclComm_t comm, ncclCommMemStat_t which) {
    std::uint64_t value = 77;
    CHECK(ncclCommMemStats(comm, which, &value) == ncclSuccess);
    return value;
  };
  CHECK(statistic(four[0], ncclStatGpuMemTotal) > statistic(alone[0], ncclStatGpuMemTotal));
  CHECK(statistic(alone[0], ncclStatGpuMemTotal) > 0);
  for (const ncclComm_t comm : four) {
    CHECK(statistic(comm, ncclStatGpuMemTotal) == statistic(four[0], ncclStatGpuMemTotal));
    CHECK(statistic(comm, ncclStatGpuMemPersist) == 0);
    CHECK(statistic(comm, ncclStatGpuMemSuspend) == statistic(comm, ncclStatGpuMemTotal));
    CHECK(statistic(comm, ncclStatGpuMemSuspended) == 0);
  }
  std::uint64_t value = 0;
  CHECK(ncclCommMemStats(four[0], static_cast<ncclCommMemStat_t>(4), &value) == ncclInvalidArgument);
  CHECK(ncclCommMemStats(four[0], ncclStatGpuMemTotal, nullptr) == ncclInvalidArgument);
  for (const ncclComm_t comm : alone) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  for (const ncclComm_t comm : four) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a suspended communicator has no scratch, and works when it is resumed") {
  constexpr int ranks = 3;
  constexpr int memory = 1;  // NCCL_SUSPEND_MEM
  const auto comms = makeComms(ranks);
  const auto inGroup = [&](const auto& call) {
    CHECK(ncclGroupStart() == ncclSuccess);
    for (std::size_t r = 0; r < comms.size(); ++r) CHECK(call(comms[r], r) == ncclSuccess);
    return ncclGroupEnd();
  };
  const auto suspend = [](ncclComm_t comm, std::size_t) { return ncclCommSuspend(comm, memory); };
  const auto resume = [](ncclComm_t comm, std::size_t) { return ncclCommResume(comm); };
  const auto checkSum = [&] {
    std::vector<float> values{1, 2, 4};
    CHECK(inGroup([&](ncclComm_t comm, std::size_t r) {
            return ncclAllReduce(&values[r], &values[r], 1, ncclFloat32, ncclSum, comm, nullptr);
          }) == ncclSuccess);
    CHECK(values == std::vector<float>{7, 7, 7});
  };
  const auto statistic = [&](ncclCommMemStat_t which) {
    std::uint64_t value = 77;
    CHECK(ncclCommMemStats(comms[1], which, &value) == ncclSuccess);
    return value;
  };
  CHECK(ncclCommSuspend(comms[0], 0) == ncclInvalidArgument);
  const std::size_t descriptors = mscclpp::test::openDescriptors();
  const std::uint64_t scratch = statistic(ncclStatGpuMemSuspend);
  for (int i = 0; i < 3; ++i) {
    checkSum();
    CHECK(inGroup(suspend) == ncclSuccess);
    CHECK(statistic(ncclStatGpuMemSuspended) == 1);
    CHECK(statistic(ncclStatGpuMemSuspend) == scratch);
    CHECK(statistic(ncclStatGpuMemTotal) == 0);
    CHECK(mscclpp::test::openDescriptors() < descriptors);  // that of the memory
    float value = 1;
    ncclComm_t part = nullptr;
    ncclResult_t failure = ncclInProgress;
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(comms[0])).find("ncclCommResume") != std::string::npos);
    CHECK(ncclCommSplit(comms[0], 0, 0, &part, nullptr) == ncclInvalidUsage);
    CHECK(ncclCommSuspend(comms[0], memory) == ncclInvalidUsage);
    CHECK(ncclCommGetAsyncError(comms[0], &failure) == ncclSuccess);
    CHECK(failure == ncclSuccess);
    CHECK(inGroup(resume) == ncclSuccess);
    CHECK(inGroup(resume) == ncclSuccess);  // without effect
    CHECK(statistic(ncclStatGpuMemSuspended) == 0);
    CHECK(statistic(ncclStatGpuMemTotal) == scratch);
    CHECK(mscclpp::test::openDescriptors() == descriptors);
  }
  checkSum();
  // What keeps one rank from suspending is an error of all.
  std::vector<ncclWindow_t> windows(ranks);
  std::vector<void*> buffers(ranks);
  for (void*& buffer : buffers) CHECK(ncclMemAlloc(&buffer, 64) == ncclSuccess);
  CHECK(inGroup([&](ncclComm_t comm, std::size_t r) {
          return ncclCommWindowRegister(comm, buffers[r], 64, &windows[r], 1);
        }) == ncclSuccess);
  for (std::size_t r = 1; r < comms.size(); ++r) CHECK(ncclCommWindowDeregister(comms[r], windows[r]) == ncclSuccess);
  CHECK(inGroup(suspend) != ncclSuccess);
  checkSum();
  CHECK(ncclCommWindowDeregister(comms[0], windows[0]) == ncclSuccess);
  CHECK(inGroup(suspend) == ncclSuccess);
  for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  for (void* const buffer : buffers) CHECK(ncclMemFree(buffer) == ncclSuccess);
}
