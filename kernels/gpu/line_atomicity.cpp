// Detects whether a warp's store of a 128-byte line reaches every peer as one transaction, as LL128 requires.
//
// PTX does not guarantee it. It holds over NVLink (tests/packet has the litmus test); over PCIe a line may be split.
// CUDA distinguishes the two by native atomic operations, but only for GPUs that this process sees. With
// CUDA_VISIBLE_DEVICES set per rank it sees none of its peers' GPUs: then NVML is asked for the pair, which reports
// every GPU of the host. In containers that hide the other GPUs from NVML too, each rank reports its own links: two
// GPUs of one host whose links lead to NVSwitches reach each other over them, as a host has one fabric of switches.
#include "line_atomicity.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/nvml.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels::gpu {

namespace {

enum class Answer : std::uint8_t { No, Yes, Unknown };

/// A GPU, the same in every process: CUDA's index of it is not.
struct GpuAddress {
  std::uint64_t host;
  std::array<char, 32> pci;

  std::string pciBusId() const { return {pci.begin(), std::find(pci.begin(), pci.end(), '\0')}; }
};

/// No if one of the answers for the peers is No, Yes if all are.
template <class Ask>
Answer forAllPeers(std::size_t ranks, Ask ask) {
  Answer result = Answer::Yes;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const Answer answer = ask(peer);
    if (answer == Answer::No) return Answer::No;
    if (answer == Answer::Unknown) result = Answer::Unknown;
  }
  return result;
}

/// What CUDA reports for the way from `device` to a peer's GPU.
Answer hasNativeAtomics(int device, const GpuAddress& peer) {
  if (peer.host != detail::hostHash()) return Answer::No;
  int other = -1;
  if (cudaDeviceGetByPCIBusId(&other, peer.pciBusId().c_str()) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return Answer::Unknown;
  }
  if (other == device) return Answer::Yes;
  int nativeAtomics = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetP2PAttribute(&nativeAtomics, cudaDevP2PAttrNativeAtomicSupported, device, other));
  return nativeAtomics != 0 ? Answer::Yes : Answer::No;
}

/// Collective, for GPUs that not every rank sees.
Answer queryNvlinks(const detail::GroupAgreement& agreement, const std::vector<GpuAddress>& gpus) {
  const std::string own = gpus[static_cast<std::size_t>(agreement.groupRank())].pciBusId();
  const detail::Nvml nvml;
  const auto onSwitch = agreement.gather("query the NVLinks of its GPU", [&] {
    const auto links = nvml.links(own);
    return static_cast<std::uint8_t>(links && links->active > 0 && links->viaSwitch ? 1 : 0);
  });
  const bool isOnSwitch = onSwitch[static_cast<std::size_t>(agreement.groupRank())] != 0;
  return forAllPeers(gpus.size(), [&](std::size_t peer) {
    if (gpus[peer].host != detail::hostHash()) return Answer::No;
    const std::string address = gpus[peer].pciBusId();
    if (address == own) return Answer::Yes;
    if (const auto linked = nvml.connectedByNvlink(own, address)) return *linked ? Answer::Yes : Answer::No;
    return isOnSwitch && onSwitch[peer] != 0 ? Answer::Yes : Answer::Unknown;
  });
}

}  // namespace

bool areLineStoresAtomic(Bootstrap& bootstrap) {
  const detail::GroupAgreement agreement(bootstrap, "LL128");
  int device = -1;
  const auto gpus = agreement.gather("find the address of its GPU", [&] {
    device = detail::currentGpu();
    GpuAddress own{detail::hostHash(), {}};
    const std::string pci = detail::gpuPciBusId(device);
    std::copy_n(pci.begin(), std::min(pci.size(), own.pci.size() - 1), own.pci.begin());
    return own;
  });
  Answer answer = Answer::No;
  auto answers = agreement.gather("query its links", [&] {
    const std::string& setting = env()->ll128;
    if (setting == "on") answer = Answer::Yes;
    if (setting == "auto") {
      answer = forAllPeers(gpus.size(), [&](std::size_t peer) { return hasNativeAtomics(device, gpus[peer]); });
    }
    return answer;
  });
  const auto contains = [&](Answer wanted) {
    return std::find(answers.begin(), answers.end(), wanted) != answers.end();
  };
  // All ranks see the same answers, so they take this step together.
  if (contains(Answer::Unknown) && !contains(Answer::No)) {
    const Answer linked = queryNvlinks(agreement, gpus);
    answers = agreement.gather("agree on LL128", [&] { return answer == Answer::Unknown ? linked : answer; });
  }
  const bool whole = !contains(Answer::Unknown) && !contains(Answer::No);
  if (!whole) {
    logMessage(LogLevel::Info, LogSubsystem::Algo,
               "LL128 is disabled: not every rank can verify that NVLink connects it to the GPUs of all "
               "ranks, so that its 128-byte stores are atomic; MSCCLPP_LL128=on overrides this");
  }
  return whole;
}

}  // namespace mscclpp::kernels::gpu
