// The GPUs of this machine: the capabilities of each, and the link between each pair.
#include <cuda_runtime_api.h>

#include "host/channel/switch/multicast_group.hpp"
#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/nvml.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/numa.hpp"
#include "report.hpp"

namespace mscclpp::info {

namespace {

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// As nvidia-smi prints it, and CUDA_VISIBLE_DEVICES accepts it.
std::string uuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

bool has(CUdevice_attribute attribute, int device) {
  int value = 0;
  MSCCLPP_CUTHROW(detail::driver().deviceGetAttribute(&value, attribute, device));
  return value != 0;
}

Json memoryHandleTypes(int device) {
  const bool virtualMemory = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  return {{"posixFd", virtualMemory && has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)},
          {"fabric", virtualMemory && has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device)},
          {"runtimeIpc", has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device)},
          {"dmaBuf", has(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device)},
          {"gpuDirectRdma", has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device)},
          {"gpuDirectRdmaOfVirtualMemory",
           virtualMemory && has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device)}};
}

Json multicastSupport(int device) {
  const std::string reason = detail::whyNoMulticast(device);
  return {{"supported", has(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device)},
          {"used", reason.empty()},
          {"reason", reason.empty() ? "supported by the GPU, and not disabled" : reason}};
}

Json describeGpu(int device, const detail::Nvml& nvml) {
  cudaDeviceProp properties{};
  MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, device));
  const std::string busId = detail::gpuPciBusId(device);
  Json links = nullptr;
  if (const auto found = nvml.links(busId))
    links = {{"active", found->active}, {"nvlinkVersion", found->version}, {"viaSwitch", found->viaSwitch}};
  return {{"index", device},
          {"name", properties.name},
          {"computeCapability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"memoryBytes", properties.totalGlobalMem},
          {"multiprocessors", properties.multiProcessorCount},
          {"pciBusId", busId},
          {"uuid", uuidText(properties.uuid)},
          {"numaNode", getDeviceNumaNode(device)},
          {"links", links},
          {"bulkCopies", properties.major >= 9},
          {"multicast", multicastSupport(device)},
          {"memoryHandles", memoryHandleTypes(device)}};
}

Json describePair(const Json& from, const Json& to, const detail::Nvml& nvml) {
  const int a = from["index"];
  const int b = to["index"];
  const auto attribute = [&](cudaDeviceP2PAttr name) {
    int value = 0;
    MSCCLPP_CUDATHROW(cudaDeviceGetP2PAttribute(&value, name, a, b));
    return value;
  };
  const bool access = attribute(cudaDevP2PAttrAccessSupported) != 0;
  const auto nvlink = nvml.connectedByNvlink(from["pciBusId"], to["pciBusId"]);
  const bool viaSwitch = from["links"].is_object() && from["links"]["viaSwitch"] == true;
  const std::string link = !nvlink.has_value() ? "unknown" : !*nvlink ? "PCIe" : viaSwitch ? "NVSwitch" : "NVLink";
  const bool descriptors = to["memoryHandles"]["posixFd"] == true;
  const std::string mapping = descriptors ? "through a file descriptor (GpuBuffer) or a runtime IPC handle (cudaMalloc)"
                                          : "through a runtime IPC handle";
  return {{"from", a},
          {"to", b},
          {"peerAccess", access},
          {"atomics", attribute(cudaDevP2PAttrNativeAtomicSupported) != 0},
          {"performanceRank", attribute(cudaDevP2PAttrPerformanceRank)},
          {"link", link},
          {"transport", access ? "CudaIpc" : "none"},
          {"reason",
           access ? "kernels read and write the peer's memory, mapped " + mapping
                  : "the driver has no peer access between these GPUs; use Ethernet, a verbs device, or CPU ranks"}};
}

}  // namespace

Json queryGpus() {
  Json report{
      {"cuda", {{"built", true}, {"driver", nullptr}, {"runtime", nullptr}, {"nvml", nullptr}, {"error", nullptr}}},
      {"gpus", Json::array()},
      {"pairs", Json::array()}};
  Json& cuda = report["cuda"];
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) cuda["runtime"] = versionText(version);
  if (cudaDriverGetVersion(&version) == cudaSuccess && version != 0) cuda["driver"] = versionText(version);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cuda["error"] = cuda["driver"].is_null() ? "no CUDA driver" : cudaGetErrorString(error);
    return report;
  }
  const detail::Nvml nvml;
  cuda["nvml"] = nvml.error().empty() ? "loaded" : nvml.error();
  try {
    for (int device = 0; device < count; ++device) report["gpus"].push_back(describeGpu(device, nvml));
    for (const Json& from : report["gpus"]) {
      for (const Json& to : report["gpus"]) {
        if (from["index"] != to["index"]) report["pairs"].push_back(describePair(from, to, nvml));
      }
    }
  } catch (const BaseError& error) {
    cuda["error"] = error.what();
  }
  return report;
}

}  // namespace mscclpp::info
