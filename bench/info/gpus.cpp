// The GPUs of this machine: what each offers to others, and how each reaches each other one.
#include <cuda_runtime_api.h>

#include "cuda/driver.hpp"
#include "facts.hpp"
#include "gpu_rdma.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu.hpp"
#include "mscclpp/host/numa.hpp"
#include "multicast_group.hpp"
#include "nvml.hpp"

namespace mscclpp::info {

namespace {

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool has(CUdevice_attribute attribute, int device) {
  int value = 0;
  MSCCLPP_CUTHROW(detail::driver().deviceGetAttribute(&value, attribute, device));
  return value != 0;
}

Json handlesOf(int device) {
  const bool virtualMemory = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  return {{"posixFd", virtualMemory && has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)},
          {"fabric", virtualMemory && has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device)},
          {"runtimeIpc", has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device)},
          {"dmaBuf", has(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device)},
          {"gpuDirectRdma", has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device)},
          {"gpuDirectRdmaOfVirtualMemory",
           virtualMemory && has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device)}};
}

Json multicastOf(int device) {
  const std::string why = detail::whyNoMulticast(device);
  return {{"supported", has(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device)},
          {"used", why.empty()},
          {"why", why.empty() ? "the GPU has it, and nothing forbids it" : why}};
}

Json describeGpu(int device, const Nvml& nvml) {
  cudaDeviceProp properties{};
  MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, device));
  const std::string busId = detail::gpuBusId(device);
  Json links = nullptr;
  if (const auto found = nvml.links(busId))
    links = {{"active", found->active}, {"nvlinkVersion", found->version}, {"throughSwitch", found->throughSwitch}};
  return {{"index", device},
          {"name", properties.name},
          {"computeCapability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"memoryBytes", properties.totalGlobalMem},
          {"multiprocessors", properties.multiProcessorCount},
          {"pciBusId", busId},
          {"numaNode", getDeviceNumaNode(device)},
          {"links", links},
          {"bulkCopies", properties.major >= 9},
          {"multicast", multicastOf(device)},
          {"memoryHandles", handlesOf(device)}};
}

Json describePair(const Json& from, const Json& to, const Nvml& nvml) {
  const int a = from["index"];
  const int b = to["index"];
  const auto attribute = [&](cudaDeviceP2PAttr name) {
    int value = 0;
    MSCCLPP_CUDATHROW(cudaDeviceGetP2PAttribute(&value, name, a, b));
    return value;
  };
  const bool access = attribute(cudaDevP2PAttrAccessSupported) != 0;
  const auto nvlink = nvml.connectedByNvlink(from["pciBusId"], to["pciBusId"]);
  const bool throughSwitch = from["links"].is_object() && from["links"]["throughSwitch"] == true;
  const std::string link = !nvlink.has_value() ? "unknown" : !*nvlink ? "PCIe" : throughSwitch ? "NVSwitch" : "NVLink";
  const bool descriptors = to["memoryHandles"]["posixFd"] == true;
  const std::string mapping =
      descriptors ? "by a descriptor (GpuBuffer) or a runtime handle (cudaMalloc)" : "by a runtime handle";
  return {
      {"from", a},
      {"to", b},
      {"peerAccess", access},
      {"atomics", attribute(cudaDevP2PAttrNativeAtomicSupported) != 0},
      {"performanceRank", attribute(cudaDevP2PAttrPerformanceRank)},
      {"link", link},
      {"transport", access ? "CudaIpc" : "none"},
      {"why", access ? "kernels read and write the peer's memory, mapped " + mapping
                     : "the driver offers no access between these two; take Ethernet or a verbs device, or CPU ranks"}};
}

}  // namespace

Json gatherGpus() {
  Json facts{
      {"cuda", {{"built", true}, {"driver", nullptr}, {"runtime", nullptr}, {"nvml", nullptr}, {"problem", nullptr}}},
      {"gpus", Json::array()},
      {"pairs", Json::array()}};
  Json& cuda = facts["cuda"];
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) cuda["runtime"] = versionText(version);
  if (cudaDriverGetVersion(&version) == cudaSuccess && version != 0) cuda["driver"] = versionText(version);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cuda["problem"] = cuda["driver"].is_null() ? "no CUDA driver" : cudaGetErrorString(error);
    return facts;
  }
  const Nvml nvml;
  cuda["nvml"] = nvml.problem().empty() ? "loaded" : nvml.problem();
  try {
    for (int device = 0; device < count; ++device) facts["gpus"].push_back(describeGpu(device, nvml));
    for (const Json& from : facts["gpus"]) {
      for (const Json& to : facts["gpus"]) {
        if (from["index"] != to["index"]) facts["pairs"].push_back(describePair(from, to, nvml));
      }
    }
  } catch (const BaseError& error) {
    cuda["problem"] = error.what();
  }
  return facts;
}

}  // namespace mscclpp::info
