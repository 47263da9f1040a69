// Memory of emulated ranks: one buffer per rank, which all ranks can address.
#pragma once

#include <cstring>
#include <new>
#include <vector>

#include "mscclpp/sync/window.hpp"

namespace mscclpp::emulation {

class SymmetricBuffers {
 public:
  /// Allocates `bytes` bytes per rank, aligned to 128 bytes and each set to initialByte.
  SymmetricBuffers(int ranks, std::size_t bytes, int initialByte = 0) {
    for (int r = 0; r < ranks; ++r) {
      buffers_.push_back(static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, alignment)));
      std::memset(buffers_.back(), initialByte, bytes);
    }
  }
  ~SymmetricBuffers() {
    for (auto* buffer : buffers_) ::operator delete(buffer, alignment);
  }
  SymmetricBuffers(const SymmetricBuffers&) = delete;
  SymmetricBuffers& operator=(const SymmetricBuffers&) = delete;

  std::byte* at(int rank) const { return buffers_[static_cast<std::size_t>(rank)]; }

  template <int Ranks = 0>
  Window<Ranks> window() const {
    Window<Ranks> result{};
    for (std::size_t r = 0; r < buffers_.size(); ++r) result.base[r] = buffers_[r];
    return result;
  }

 private:
  static constexpr std::align_val_t alignment{128};
  std::vector<std::byte*> buffers_;
};

}  // namespace mscclpp::emulation
