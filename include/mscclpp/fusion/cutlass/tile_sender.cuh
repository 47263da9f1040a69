// Copies of tiles to other ranks by a few warps, beside warps that compute.
#pragma once

#include <cstddef>

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A tile in this rank's memory. first, pitch and rowBytes are multiples of 16.
struct TileSource {
  const std::byte* first;
  std::size_t pitch;  ///< bytes from row to row
  int rows;           ///< from the first one on that there are; what is beyond the tile is not sent
  int rowBytes;       ///< of a row, the same
};

/// How the warps that have nothing else to do in a warp-specialised kernel of CUTLASS copy tiles. Loads are ordinary
/// ones into registers, of which these warps have few: two warps have enough of them in flight for the link. They do
/// not queue behind the loads of the multiplication, as those of the copy engine would.
struct TileSender {
  static constexpr int warps = 2;  ///< of a block, each of which copies half of every tile
  static constexpr int loads = 4;  ///< of a lane that are in flight together: a piece
  static constexpr int width = gpu::WarpTile<>::width;
  static constexpr int pieceBytes = loads * width * static_cast<int>(sizeof(Word128));

  /// The nanoseconds of a pause after a piece with which `blocks` blocks that send at once leave the link idle for half
  /// of the time: stores that it has not taken yet are in the way of the multiprocessor's other requests to memory,
  /// those of the multiplication too.
  static MSCCLPP_HOST_DEVICE constexpr unsigned pauseFor(int blocks) { return 10 * static_cast<unsigned>(blocks); }

  /// Copies every second piece of a tile of tileRows x tileRowBytes bytes, from piece `sender` on, to memory where its
  /// rows follow each other without gaps. Called by all lanes of a warp. forEachDestination(f) calls f(std::byte*) for
  /// each destination, the same ones whenever it is called. The stores are ordinary ones of all lanes: a sync of the
  /// warp and a release by one lane publish them. isEarly(): whether the warp has the time to pause after it has
  /// stored a piece at a destination, called by each lane for itself.
  template <int tileRows, int tileRowBytes, class ForEachDestination, class IsEarly>
  static MSCCLPP_DEVICE __forceinline__ void copy(int sender, const TileSource& source,
                                                  const ForEachDestination& forEachDestination,
                                                  const IsEarly& isEarly) {
    constexpr int count = tileRows * tileRowBytes / pieceBytes;
    static_assert(tileRows * tileRowBytes % pieceBytes == 0 && tileRowBytes % sizeof(Word128) == 0);
    const int lane = gpu::WarpTile<>().rank();
    const unsigned pause = pauseFor(gpu::Grid().blockCount());
    MSCCLPP_NO_UNROLL
    for (int piece = sender; piece < count; piece += warps) {
      const int first = piece * pieceBytes + lane * static_cast<int>(sizeof(Word128));
      Word128 words[loads];
      unsigned present = 0;
      MSCCLPP_UNROLL
      for (int i = 0; i < loads; ++i) {
        const int at = first + i * width * static_cast<int>(sizeof(Word128));
        const int row = at / tileRowBytes, byte = at % tileRowBytes;
        if (row >= source.rows || byte >= source.rowBytes) continue;
        present |= 1u << i;
        // Relaxed: other tiles were there before, which the L1 cache may have.
        words[i] = arch::load<arch::Order::Relaxed, arch::Scope::Device>(reinterpret_cast<const Word128*>(
            source.first + static_cast<std::size_t>(row) * source.pitch + static_cast<std::size_t>(byte)));
      }
      forEachDestination([&](std::byte* to) {
        MSCCLPP_UNROLL
        for (int i = 0; i < loads; ++i) {
          if ((present >> i & 1u) != 0) arch::storeWide(to + first + i * width * sizeof(Word128), words[i]);
        }
        if (piece + warps < count && isEarly()) arch::sleepFor(pause);
      });
    }
  }
};

}  // namespace mscclpp
