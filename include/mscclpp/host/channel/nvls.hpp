// A group of ranks whose memory a switch can reduce and broadcast (NVLink SHARP, "NVLS"): GPUs behind one NVSwitch, or
// CPU ranks that do the same in loops.
//
// The GPU implementation has been compiled and tests check its instructions; it has not been run on GPUs.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/channel/switch_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

/// Space in a multicast object, from which switch channels are allocated. Every function is called by all ranks of the
/// group, in the same order. The ranks agree on the success of each step before the next, so a rank that fails or does
/// not arrive causes an error on all ranks (within the bootstrap's timeout), never a driver call that blocks forever.
class NvlsConnection {
 public:
  /// MSCCL++-compatible overload of connectNvlsCollective, for ranks of one host without a communicator: the root
  /// creates one for `numDevices` ranks and sends serialize() to the others, which construct theirs from it. All ranks
  /// connect in the first call of bindMemory or bindAllocatedMemory, which does what connectNvlsCollective does, on the
  /// device that is current then, and throws what it throws: each rank needs its own thread.
  NvlsConnection(std::size_t bufferSize, int numDevices, DeviceType where = DeviceType::GPU);
  explicit NvlsConnection(const std::vector<char>& data);
  /// For numDevices - 1 ranks; any process that has it can join. Throws Error(InvalidUsage) unless this is the root's.
  std::vector<char> serialize() const;
  /// Channels always have barriers. Throws Error(InvalidUsage) unless `nRanks` is the number of ranks.
  void attachBarrier(int nRanks) const;

  ~NvlsConnection();
  NvlsConnection(const NvlsConnection&) = delete;
  NvlsConnection& operator=(const NvlsConnection&) = delete;

  /// Maps `bytes` bytes of this rank's memory at one address together with those of the other ranks. On GPUs: memory of
  /// the device that was current at connectNvlsCollective, from GpuBuffer or another cuMem allocation, address and size
  /// multiples of granularity(); pass a GpuBuffer's data() and bytes(). On CPUs: memory within a HostBuffer. Keep the
  /// memory for as long as the channel. Throws on every rank if sizes differ, memory is not suitable or the space is
  /// used up.
  SwitchChannel bindMemory(void* data, std::size_t bytes);
  /// MSCCL++-compatible overload, with a CUdeviceptr.
  SwitchChannel bindAllocatedMemory(unsigned long long devicePtr, std::size_t bytes) {
    return bindMemory(reinterpret_cast<void*>(devicePtr), bytes);
  }

  // Valid as soon as the ranks are connected; before that they throw Error(InvalidUsage).
  const std::vector<int>& ranks() const;
  /// Total size in bytes that channels can take.
  std::size_t bufferSize() const;
  /// Addresses and sizes of memory must be multiples of this.
  std::size_t granularity() const;

 private:
  friend std::shared_ptr<NvlsConnection> connectNvlsCollectiveOn(DeviceType where,
                                                                 std::shared_ptr<Communicator> communicator,
                                                                 std::vector<int> ranks, std::size_t bufferSize);
  struct JoinInfo;
  struct State;
  explicit NvlsConnection(std::unique_ptr<State> state);
  void joinGroup();
  const State& state() const;

  std::unique_ptr<JoinInfo> joinInfo_;  // null if the ranks have a communicator
  std::unique_ptr<State> state_;
};

/// Called by each of `ranks` with the same arguments; the lowest creates the object, `bufferSize` bytes per rank.
/// Throws on every rank, with the failing rank and the reason, if multicast is not supported or is disabled
/// (MSCCLPP_FORCE_DISABLE_NVLS, NCCL_NVLS_ENABLE=0), two ranks share a GPU, arguments differ or a step fails; also
/// throws what the bootstrap throws for a rank that does not arrive.
std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> communicator,
                                                      std::vector<int> ranks, std::size_t bufferSize);
/// The same for GPUs or for CPU ranks.
std::shared_ptr<NvlsConnection> connectNvlsCollectiveOn(DeviceType where, std::shared_ptr<Communicator> communicator,
                                                        std::vector<int> ranks, std::size_t bufferSize);

}  // namespace mscclpp
