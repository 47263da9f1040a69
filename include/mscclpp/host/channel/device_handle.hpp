// The device side of a host object, under one name for all classes.
#pragma once

namespace mscclpp {

/// The trivially copyable type that a kernel takes for a T.
template <typename T>
using DeviceHandle = typename T::DeviceHandle;

/// The device handle of an object, which must outlive the handle's use.
template <typename T>
DeviceHandle<T> deviceHandle(const T& object) {
  return object.deviceHandle();
}

/// The payload of one packet of a format.
template <typename T>
using PacketPayload = typename T::Payload;

}  // namespace mscclpp
