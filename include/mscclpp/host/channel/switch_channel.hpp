// Switch channels: memory of every rank of a group at one multicast address. The host object; the device side is
// channel/switch.hpp.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/channel/switch.hpp"

namespace mscclpp {

/// Created by NvlsConnection::bindMemory, on every rank of the group, or over a mapping of the user's. Keeps the memory
/// attached; the ranks must synchronise before the first of them destroys what the others' kernels use. Cheap to copy.
class SwitchChannel {
 public:
  using DeviceHandle = SwitchChannelHandle;

  /// Empty: deviceHandle() throws Error(InvalidUsage).
  SwitchChannel() = default;
  /// Over `bytes` bytes of multicast memory that the caller has mapped at `mcPtr`; this rank's own memory is at
  /// `devicePtr`. Its handle reduces and broadcasts; it has no barriers.
  SwitchChannel(void* devicePtr, std::shared_ptr<void> mcPtr, std::size_t bytes);

  DeviceHandle deviceHandle() const;
  /// This rank's memory, as passed by the caller.
  void* getDevicePtr() const;

 private:
  friend class NvlsConnection;
  struct State;
  explicit SwitchChannel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const;

  std::shared_ptr<const State> state_;
};

}  // namespace mscclpp
