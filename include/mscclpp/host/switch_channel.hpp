// Switch channels: memory of every rank of a group behind one multicast address. The owner; the device side is channel/switch.hpp.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/channel/switch.hpp"

namespace mscclpp {

/// Made by NvlsConnection::bindAllocatedMemory, on every rank of the group, or over a mapping of the user's. Keeps the memory attached; the ranks
/// synchronise before the first of them destroys what the others' kernels use. A cheap value.
class SwitchChannel {
 public:
  using DeviceHandle = SwitchChannelHandle;

  /// Stands for nothing: deviceHandle() throws Error(InvalidUsage).
  SwitchChannel() = default;
  /// Over multicast memory that the caller has mapped at `mcPtr`, `bytes` bytes, and which is `devicePtr` here. Its handle
  /// reduces and broadcasts; it has no barriers.
  SwitchChannel(void* devicePtr, std::shared_ptr<void> mcPtr, std::size_t bytes);

  DeviceHandle deviceHandle() const;
  /// This rank's memory, as it was given.
  void* getDevicePtr() const;

 private:
  friend class NvlsConnection;
  struct State;
  explicit SwitchChannel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const;

  std::shared_ptr<const State> state_;
};

}  // namespace mscclpp
