// MSCCL++'s copies by numbered threads; for those to and from packets see packet_device.hpp.
#pragma once

#include "mscclpp/atomic_device.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/packet_device.hpp"
#include "mscclpp/poll_device.hpp"

namespace mscclpp {

/// Element `index` of an array of T, by a plain load or store.
template <typename T>
MSCCLPP_HOST_DEVICE_INLINE T read(const void* ptr, std::uint64_t index) {
  return arch::loadPlain<T>(static_cast<const T*>(ptr) + index);
}
template <typename T>
MSCCLPP_HOST_DEVICE_INLINE void write(void* ptr, std::uint64_t index, const T& value) {
  arch::storePlain(static_cast<T*>(ptr) + index, value);
}

/// copy() with the alignment of T.
template <typename T, bool CopyRemainder = true>
MSCCLPP_HOST_DEVICE_INLINE void copyHelper(void* dst, const void* src, std::uint64_t bytes, std::uint32_t threadId,
                                           std::uint32_t numThreads) {
  copy<sizeof(T), CopyRemainder>(dst, src, bytes, threadId, numThreads);
}

}  // namespace mscclpp
