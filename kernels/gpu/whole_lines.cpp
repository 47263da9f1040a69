// Whether a warp's store of a 128-byte line reaches the memory of every peer whole, which LL128 relies on.
#include "whole_lines.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/host/env.hpp"
#include "mscclpp/host/gpu.hpp"
#include "mscclpp/host/logger.hpp"

namespace mscclpp::kernels::gpu {

namespace {

/// A GPU by its PCI address, which means the same in every process.
using Address = std::array<char, 32>;

/// PTX does not promise it; between GPUs on NVLink it holds (tests/packet has the litmus test), over PCIe a line may be split. Native atomic operations tell
/// the two apart. A GPU that this process does not see could be on either.
bool knownBetween(int device, const Address& peer) {
  int other = -1;
  if (cudaDeviceGetByPCIBusId(&other, peer.data()) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  if (other == device) return true;
  int nativeAtomics = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetP2PAttribute(&nativeAtomics, cudaDevP2PAttrNativeAtomicSupported, device, other));
  return nativeAtomics != 0;
}

}  // namespace

bool linesStayWhole(Bootstrap& bootstrap) {
  const auto ranks = static_cast<std::size_t>(bootstrap.getNranks());
  const auto rank = static_cast<std::size_t>(bootstrap.getRank());
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  std::vector<Address> addresses(ranks, Address{});
  MSCCLPP_CUDATHROW(cudaDeviceGetPCIBusId(addresses[rank].data(), static_cast<int>(sizeof(Address)), device));
  bootstrap.allGather(addresses.data(), sizeof(Address));
  for (Address& address : addresses) address.back() = '\0';

  const std::string& setting = env()->ll128;
  const bool known =
      setting == "on" || (setting == "auto" && std::all_of(addresses.begin(), addresses.end(),
                                                           [&](const Address& a) { return knownBetween(device, a); }));
  // All ranks have to choose alike.
  std::vector<std::uint8_t> verdicts(ranks, 0);
  verdicts[rank] = known ? 1 : 0;
  bootstrap.allGather(verdicts.data(), 1);
  const bool whole = std::find(verdicts.begin(), verdicts.end(), 0) == verdicts.end();
  if (!whole) {
    logMessage(
        LogLevel::Info, LogSubsystem::Algo,
        "all-reduce goes without LL128: not every rank knows that its stores of 128 bytes stay whole on the way to "
        "every GPU (links without native atomics, or GPUs hidden by CUDA_VISIBLE_DEVICES); MSCCLPP_LL128=on says "
        "that they do");
  }
  return whole;
}

}  // namespace mscclpp::kernels::gpu
