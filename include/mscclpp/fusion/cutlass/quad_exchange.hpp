// Exchange of registers among four neighbouring lanes: what each has a word of, one of them gets as a whole.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Transposes four words over each four neighbouring lanes: afterwards words[i] of lane l of the four is what words[l]
/// of lane i was. Tensor cores leave 8 columns of a row in four lanes, in pairs; four such pieces become one in each
/// lane, which it can store at once. Called by all lanes of a warp.
template <WarpGroup Warp>
MSCCLPP_INLINE void transposeInQuads(const Warp& warp, Vector<std::uint32_t, 4>& words) {
  // A 2 x 2 matrix is transposed by the exchange of two elements: first within blocks of 2 x 2 words, then of blocks.
  const auto exchange = [&](std::uint32_t& first, std::uint32_t& second, int distance) {
    const bool isUpper = (warp.rank() & distance) != 0;
    const std::uint32_t got = warp.shuffle(isUpper ? first : second, warp.rank() ^ distance);
    if (isUpper) {
      first = got;
    } else {
      second = got;
    }
  };
  exchange(words[0], words[1], 1);
  exchange(words[2], words[3], 1);
  exchange(words[0], words[2], 2);
  exchange(words[1], words[3], 2);
}

}  // namespace mscclpp
