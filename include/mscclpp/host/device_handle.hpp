// The device side of a host object, by one name for all of them.
#pragma once

namespace mscclpp {

/// The trivially copyable type that a kernel takes for a T.
template <typename T>
using DeviceHandle = typename T::DeviceHandle;

/// That value for an object, which must outlive its use.
template <typename T>
DeviceHandle<T> deviceHandle(const T& object) {
  return object.deviceHandle();
}

/// What one packet of a format carries.
template <typename T>
using PacketPayload = typename T::Payload;

}  // namespace mscclpp
