// Copies of tiles to other ranks by a single warp, beside warps that compute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/arch/async_copy.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A ring of pieces in shared memory, through which one warp copies from this rank's memory to that of others. What is
/// in flight covers a trip to the L2 cache. Loads are those of cp.async, which take no registers, of which this warp
/// has few, and do not queue behind the loads of the multiplication, as those of the copy engine would.
struct alignas(128) TileSendRing {
  static constexpr int loads = 8;   ///< of a lane, in a piece
  static constexpr int pieces = 4;  ///< one is stored while the others are loaded
  static constexpr int width = gpu::WarpTile<>::width;
  static constexpr int pieceBytes = loads * width * static_cast<int>(sizeof(Word128));
  static constexpr int linkBytesPerMicrosecond = 360'000;  ///< of a GPU of compute capability 9.0 behind an NVSwitch
  static constexpr int pieceNanoseconds = 800;             ///< for a piece by itself

  /// The pause after a piece with which `blocks` blocks that send at once do not send more than the link takes. The
  /// stores that a link has not taken yet are in the way of the multiprocessor's other requests to memory, those of the
  /// multiplication too.
  static MSCCLPP_HOST_DEVICE constexpr unsigned pauseFor(int blocks) {
    const long long nanoseconds = 1000ll * blocks * pieceBytes / linkBytesPerMicrosecond - pieceNanoseconds;
    return nanoseconds > 0 ? static_cast<unsigned>(nanoseconds) : 0u;
  }

  Word128 words[pieces][loads][width];

  /// Copies `bytes` bytes, a multiple of pieceBytes, at multiples of 16 bytes. Called by all lanes of the warp.
  /// forEachDestination(f) calls f(std::byte*) for each destination, the same ones whenever it is called. The stores
  /// are ordinary ones of all lanes: a sync of the warp and a release by one lane publish them. pause: nanoseconds
  /// after a piece for a destination, but for the last piece.
  template <class ForEachDestination>
  MSCCLPP_DEVICE __forceinline__ void copy(const std::byte* from, int bytes,
                                           const ForEachDestination& forEachDestination, unsigned pause) {
    const int lane = gpu::WarpTile<>().rank();
    const int count = bytes / pieceBytes;
    const auto load = [&](int piece) {
      if (piece < count) {
        const std::byte* const at = from + static_cast<std::size_t>(piece) * pieceBytes + lane * sizeof(Word128);
        MSCCLPP_UNROLL
        for (int i = 0; i < loads; ++i) {
          arch::copyAsync(&words[piece % pieces][i][lane], at + i * width * sizeof(Word128), sizeof(Word128));
        }
      }
      arch::copyAsyncCommit();
    };
    MSCCLPP_NO_UNROLL
    for (int piece = 0; piece < pieces - 1; ++piece) load(piece);
    MSCCLPP_NO_UNROLL
    for (int piece = 0; piece < count; ++piece) {
      load(piece + pieces - 1);  // where this lane has stored the piece before
      arch::copyAsyncWait<pieces - 1>();
      forEachDestination([&](std::byte* to) {
        std::byte* const at = to + static_cast<std::size_t>(piece) * pieceBytes + lane * sizeof(Word128);
        MSCCLPP_UNROLL
        for (int i = 0; i < loads; ++i) {
          arch::storeWide(at + i * width * sizeof(Word128), words[piece % pieces][i][lane]);
        }
        if (pause > 0 && piece + 1 < count) arch::sleepFor(pause);
      });
    }
  }
};

}  // namespace mscclpp
