// mscclpp-info's text of a machine with GPUs and network devices, which the machine of this test may not have.
#include <doctest/doctest.h>

#include "report.hpp"

using mscclpp::info::describe;
using mscclpp::info::Json;

namespace {

Json gpu(int index, const Json& links) {
  return {{"index", index},
          {"name", "Some GPU"},
          {"computeCapability", "9.0"},
          {"memoryBytes", std::size_t{141} << 30},
          {"multiprocessors", 132},
          {"pciBusId", "0000:3b:00.0"},
          {"uuid", "GPU-01234567-89ab-cdef-0123-456789abcdef"},
          {"numaNode", 1},
          {"links", links},
          {"bulkCopies", true},
          {"multicast", {{"supported", true}, {"used", false}, {"reason", "NCCL_NVLS_ENABLE is 0"}}},
          {"memoryHandles",
           {{"posixFd", true},
            {"fabric", false},
            {"runtimeIpc", true},
            {"dmaBuf", false},
            {"gpuDirectRdma", false},
            {"gpuDirectRdmaOfVirtualMemory", false}}}};
}

Json machine() {
  return {{"mscclpp", "1.2.3"},
          {"host", {{"name", "somewhere"}, {"cpus", 96}}},
          {"cuda", {{"built", true}, {"driver", "13.0"}, {"runtime", "13.0"}, {"nvml", "loaded"}, {"error", nullptr}}},
          {"gpus",
           {gpu(0, {{"active", 18}, {"nvlinkVersion", 4}, {"viaSwitch", true}}),
            gpu(1, {{"active", 0}, {"nvlinkVersion", 0}, {"viaSwitch", false}}), gpu(2, nullptr)}},
          {"pairs",
           {{{"from", 0},
             {"to", 1},
             {"peerAccess", true},
             {"atomics", true},
             {"performanceRank", 0},
             {"link", "NVSwitch"},
             {"transport", "CudaIpc"},
             {"reason", "mapped"}}}},
          {"verbs", {{"built", true}, {"error", nullptr}}},
          {"nics",
           {{{"name", "mlx5_0"},
             {"transport", "IB0"},
             {"gids", Json::array()},
             {"distances", {{{"gpu", 0}, {"level", "samePort"}, {"bridges", 2}}}}}}},
          {"cpuRanks", {{"transport", "SharedMemory"}, {"reason", "mapped"}}},
          {"interHost", {{{"gpu", 0}, {"transport", "IB0"}, {"reason", "the nearest"}}}},
          {"environment", {{"NCCL_NVLS_ENABLE", "0"}}}};
}

}  // namespace

TEST_CASE("info: everything that was found is in the text") {
  const std::string text = describe(machine());
  for (const char* line : {
           "mscclpp 1.2.3 on somewhere, 96 CPUs\n",
           "CUDA: driver 13.0, runtime 13.0, NVML loaded\n",
           "GPU 0: Some GPU, sm 9.0, 141 GiB, 132 multiprocessors, PCI 0000:3b:00.0, UUID "
           "GPU-01234567-89ab-cdef-0123-456789abcdef, NUMA node 1, 18 links of NVLink 4 to switches\n",
           "NUMA node 1, no NVLink\n",
           "NUMA node 1, links unknown\n",
           "  memory can be exported as: posixFd, runtimeIpc; bulk copies: yes\n",
           "  multicast: no (NCCL_NVLS_ENABLE is 0)\n",
           "GPU 0 to GPU 1: CudaIpc (NVSwitch, mapped)\n",
           "mlx5_0: IB0; GPU 0 samePort\n",
           "between hosts, GPU 0: IB0 (the nearest)\n",
           "NCCL_NVLS_ENABLE=0\n",
       }) {
    CAPTURE(text);
    CAPTURE(line);
    CHECK(text.find(line) != std::string::npos);
  }
  CHECK(text.find("no GPU") == std::string::npos);
}
