// Loads of matrix fragments from shared memory, in the form that tensor cores take.
#pragma once

#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Loads four matrices of 8 x 8 elements of 16 bits (PTX ldmatrix.x4): words[m] is, of matrix m, row lane / 4, elements
/// 2t and 2t + 1 with t = lane % 4. addressOf(lane) is the address of row lane % 8 of matrix lane / 8: 16 bytes in
/// shared memory, aligned to 16. Called by all lanes of a warp of 32, with the same addressOf. Plain accesses: a sync
/// orders them after the stores.
template <class Warp, class AddressOf>
MSCCLPP_INLINE void loadMatrices(const Warp& warp, std::uint32_t (&words)[4], const AddressOf& addressOf) {
  static_assert(Warp::width == 32, "fragments are loaded by a warp of 32 lanes");
#if defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(ptx::sharedAddress(addressOf(warp.rank())))
               : "memory");
#else
  const int row = warp.rank() / 4;
  for (int m = 0; m < 4; ++m) {
    const auto* from = static_cast<const std::byte*>(addressOf(m * 8 + row));
    words[m] = loadPlain<std::uint32_t>(from + warp.rank() % 4 * 4);
  }
#endif
}

}  // namespace mscclpp::arch
