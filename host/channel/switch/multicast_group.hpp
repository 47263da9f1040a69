// What a switch, or the CPU in its place, does for a group of ranks: all ranks take each step, and agree on its success
// before the next.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "host/base/deadline.hpp"
#include "mscclpp/arch/multimem.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp::detail {

/// Memory of every rank mapped at one address.
struct MulticastMapping {
  arch::MulticastAddress address;
  /// Keeps it mapped.
  std::shared_ptr<const void> owner;
};

/// The functions are called in the order of declaration; the last three once for each memory that is attached.
class MulticastGroup {
 public:
  virtual ~MulticastGroup() = default;

  /// Addresses, offsets and sizes of attached memory are multiples of this.
  virtual std::size_t granularity() const = 0;
  /// Distinguishes this rank's device from those of the other ranks of the host.
  virtual std::string deviceKey() const = 0;

  /// Called by the root: creates the object for `bytes` of memory of each of `members` ranks. Returns what the other
  /// ranks need to import it.
  virtual std::vector<char> create(std::size_t bytes, int members) = 0;
  /// Called by the other ranks. Waits for the root until the deadline.
  virtual void import(const std::vector<char>& object, const Deadline& deadline) = 0;
  /// Binding memory blocks until every rank has added its device, and adding fails after a rank has bound memory.
  virtual void addDevice() = 0;

  /// Checks that this rank's memory can be attached. Returns what the other ranks need to map it.
  virtual std::vector<char> exportMemory(void* data, std::size_t bytes) = 0;
  /// Binds the memory at an offset of the object, for as long as the result lives.
  virtual std::shared_ptr<const void> bind(std::size_t offset, void* data, std::size_t bytes) = 0;
  /// Called after all ranks have bound their memory. `exports`: of all ranks, by position. Waits for them until the
  /// deadline.
  virtual MulticastMapping map(std::size_t offset, std::size_t bytes, const std::vector<std::vector<char>>& exports,
                               const Deadline& deadline) = 0;
};

/// CPU ranks of one host: a table of the memory of all ranks.
std::unique_ptr<MulticastGroup> makeCpuMulticastGroup(std::shared_ptr<Context> context);
/// GPUs behind one NVSwitch, for the current device. Throws Error(InvalidUsage) with the reason if it has no multicast.
std::unique_ptr<MulticastGroup> makeGpuMulticastGroup();
/// Why the device (-1: the current one) cannot use multicast, or the environment forbids it; empty if it can.
std::string whyNoMulticast(int device);

}  // namespace mscclpp::detail
