// What a switch, or the CPU in its place, does for a group of ranks: each step here is taken by all of them, and agreed upon before the next.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/arch/multimem.hpp"
#include "mscclpp/host/context.hpp"

namespace mscclpp::detail {

/// Memory of every rank behind one address.
struct MulticastMapping {
  arch::MulticastAddress address;
  /// Keeps it mapped.
  std::shared_ptr<const void> owner;
};

/// Called in the order of the functions. The last three are called for each memory that is attached.
class MulticastGroup {
 public:
  virtual ~MulticastGroup() = default;

  /// What addresses, offsets and sizes of attached memory are multiples of.
  virtual std::size_t granularity() const = 0;
  /// What tells this rank's device from those of the other ranks of the host.
  virtual std::string place() const = 0;

  /// By the root: makes the object for `bytes` of memory of each of `members` ranks. Returns what the others need.
  virtual std::vector<char> create(std::size_t bytes, int members) = 0;
  /// By the others.
  virtual void import(const std::vector<char>& object) = 0;
  /// Attaching blocks until every rank has joined, and joining is refused after somebody has attached.
  virtual void join() = 0;

  /// Checks that this rank's memory can be attached. Returns what the others need of it.
  virtual std::vector<char> offer(void* data, std::size_t bytes) = 0;
  /// Puts the memory at an offset of the object, for as long as the result lives.
  virtual std::shared_ptr<const void> attach(std::size_t offset, void* data, std::size_t bytes) = 0;
  /// After all have attached theirs. `offers` of all ranks, by position.
  virtual MulticastMapping map(std::size_t offset, std::size_t bytes, const std::vector<std::vector<char>>& offers) = 0;
};

/// CPU ranks of one host: a table of everyone's memory.
std::unique_ptr<MulticastGroup> makeCpuMulticastGroup(std::shared_ptr<Context> context);
/// GPUs behind one NVSwitch, for the current device. Throws Error(InvalidUsage) that says why if it has no multicast.
std::unique_ptr<MulticastGroup> makeGpuMulticastGroup();
/// Why the device (-1: the current one) has none, or the environment forbids it; empty if there is no reason.
std::string whyNoMulticast(int device);

}  // namespace mscclpp::detail
