// A group of ranks whose memory a switch can reduce and broadcast (NVLink SHARP, "NVLS"): GPUs behind one NVSwitch, or CPU ranks that do the same by loops.
//
// The GPU form has been compiled and its instructions are pinned by tests; it has not been run on GPUs.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/switch_channel.hpp"

namespace mscclpp {

/// Room in a multicast object, of which switch channels take parts. Every function is called by all ranks of the group,
/// in the same order; each of its steps is agreed upon before the next, so that a rank which fails, dies or does not come
/// is an error on all ranks (within the bootstrap's timeout), and never a driver call that waits for ever.
class NvlsConnection {
 public:
  /// MSCCL++'s form of connectNvlsCollective, for ranks of one host without a communicator: the root makes one for
  /// `numDevices` ranks, sends serialize() to the others, and they construct theirs of it. All meet in the first call of
  /// bindAllocatedMemory, which does what connectNvlsCollective does, on the device that is current then, and throws
  /// what it throws: each rank needs a thread of its own.
  NvlsConnection(std::size_t bufferSize, int numDevices, DeviceType where = DeviceType::GPU);
  explicit NvlsConnection(const std::vector<char>& data);
  /// For numDevices - 1 ranks; who has it can join. Throws Error(InvalidUsage) unless this is the root's.
  std::vector<char> serialize() const;
  /// Channels have barriers from the start. Throws Error(InvalidUsage) unless `nRanks` is the number of ranks.
  void attachBarrier(int nRanks) const;

  ~NvlsConnection();
  NvlsConnection(const NvlsConnection&) = delete;
  NvlsConnection& operator=(const NvlsConnection&) = delete;

  /// Puts `bytes` bytes of this rank's memory behind one address with those of the others. On GPUs: memory of the
  /// device that was current at connectNvlsCollective, from GpuBuffer or another cuMem allocation, address and size
  /// multiples of granularity(); pass a GpuBuffer's data() and bytes(). On CPUs: memory within a HostBuffer. Keep it for
  /// as long as the channel. Throws on every rank alike if sizes differ, memory does not fit or the room is
  /// used up.
  SwitchChannel bindAllocatedMemory(void* data, std::size_t bytes);
  /// MSCCL++'s form, with a CUdeviceptr.
  SwitchChannel bindAllocatedMemory(unsigned long long address, std::size_t bytes) {
    return bindAllocatedMemory(reinterpret_cast<void*>(address), bytes);
  }

  // As soon as the ranks have met; before that they throw Error(InvalidUsage).
  const std::vector<int>& ranks() const;
  /// Bytes that channels can take in all.
  std::size_t bufferSize() const;
  /// What addresses and sizes of memory are multiples of.
  std::size_t granularity() const;

 private:
  friend std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> communicator,
                                                               std::vector<int> ranks, std::size_t bufferSize,
                                                               DeviceType where);
  struct Invitation;
  struct State;
  explicit NvlsConnection(std::unique_ptr<State> state);
  void meet();
  const State& state() const;

  std::unique_ptr<Invitation> invitation_;  // null if the ranks have a communicator
  std::unique_ptr<State> state_;
};

/// Called by each of `ranks` with the same arguments; the lowest makes the object, `bufferSize` bytes a rank. Throws on
/// every rank alike, and says which rank and why, if multicast is not supported or is switched off
/// (MSCCLPP_FORCE_DISABLE_NVLS, NCCL_NVLS_ENABLE=0), two ranks share a GPU, arguments differ or a step fails; also what
/// the bootstrap throws for a rank that does not come.
std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> communicator,
                                                      std::vector<int> ranks, std::size_t bufferSize,
                                                      DeviceType where = DeviceType::GPU);

}  // namespace mscclpp
