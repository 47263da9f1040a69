// Values of opaque handles.
#pragma once

#include <atomic>
#include <cstdint>

namespace mscclpp::nccl {

/// A handle that this process has not had before: one that is kept too long never finds a newer object. No address.
template <class Handle>
Handle newHandle() {
  static std::atomic<std::uintptr_t> last{0};
  constexpr std::uintptr_t step = 16;  // as if aligned, for programs that use the low bits
  return reinterpret_cast<Handle>(last += step);
}

}  // namespace mscclpp::nccl
