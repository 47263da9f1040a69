// Where the chunks of a message lie, and how many bytes each has.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::plan {

/// Bytes [begin, begin + size) of something.
struct ByteSpan {
  std::uint64_t begin;
  std::uint64_t size;
};

/// Pieces of chunks begin at multiples of this, but for the chunks of a part, which begin at multiples of the plan's
/// alignment.
inline constexpr std::uint64_t pieceAlignment = 16;

/// A message of a plan: the sizes of its parts (operation.hpp: CollectiveKind) and of their chunks, in bytes.
struct Message {
  std::uint64_t partBytes;
  std::uint64_t pitch;         ///< of the chunks of a part
  std::int32_t chunksPerPart;  ///< at least 1

  /// Bytes of the chunk at a position of a part: less than `pitch`, or 0, at the end of the part.
  MSCCLPP_INLINE constexpr std::uint64_t bytesAt(std::int32_t position) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(position) * pitch;
    if (begin >= partBytes) return 0;
    return partBytes - begin < pitch ? partBytes - begin : pitch;
  }

  /// Where a chunk of an input or output begins.
  MSCCLPP_INLINE constexpr std::uint64_t offsetOf(std::int32_t chunk) const {
    const std::int32_t part = chunk < chunksPerPart ? 0 : chunk / chunksPerPart;  // divisions take long
    const std::uint64_t inPart = static_cast<std::uint64_t>(chunk - part * chunksPerPart) * pitch;
    return static_cast<std::uint64_t>(part) * partBytes + (inPart < partBytes ? inPart : partBytes);
  }
};

/// The message with parts of `partBytes` bytes, of elements of `elementBytes` bytes. alignment: Header::alignment.
constexpr Message messageOf(std::uint64_t partBytes, std::uint64_t elementBytes, std::int32_t chunksPerPart,
                            std::uint64_t alignment) {
  std::uint64_t unit = alignment == 0 ? 1 : alignment;  // a multiple of both
  while (unit % elementBytes != 0) unit += alignment == 0 ? 1 : alignment;
  const auto chunks = static_cast<std::uint64_t>(chunksPerPart);
  const std::uint64_t even = (partBytes + chunks - 1) / chunks;
  return {partBytes, (even + unit - 1) / unit * unit, chunksPerPart};
}

/// The bytes of a chunk of `bytes` bytes that iteration `iteration` of a loop handles: pieces of `unit` bytes, rounded
/// up to pieceAlignment. unit 0: no loop.
MSCCLPP_INLINE constexpr ByteSpan iterationOf(std::uint64_t bytes, std::uint64_t unit, std::uint64_t iteration) {
  if (unit == 0) return {0, bytes};
  const std::uint64_t step = (unit + pieceAlignment - 1) / pieceAlignment * pieceAlignment;
  const std::uint64_t begin = iteration * step < bytes ? iteration * step : bytes;
  return {begin, bytes - begin < step ? bytes - begin : step};
}
/// The number of iterations of a loop: as many as a whole chunk needs, on all ranks.
MSCCLPP_INLINE constexpr std::uint64_t iterationsOf(const Message& message, std::uint64_t unit) {
  const std::uint64_t step = (unit + pieceAlignment - 1) / pieceAlignment * pieceAlignment;
  const std::uint64_t longest = message.bytesAt(0);
  return step == 0 ? 1 : (longest + step - 1) / step;
}

/// Share `share` of `shares` of a span; shares begin at multiples of pieceAlignment from the beginning of the span.
MSCCLPP_INLINE constexpr ByteSpan shareOf(const ByteSpan& span, std::int32_t share, std::int32_t shares) {
  if (shares <= 1) return span;
  const auto count = static_cast<std::uint64_t>(shares);
  const std::uint64_t step = ((span.size + count - 1) / count + pieceAlignment - 1) / pieceAlignment * pieceAlignment;
  const std::uint64_t first = static_cast<std::uint64_t>(share) * step;
  const std::uint64_t begin = first < span.size ? first : span.size;
  return {span.begin + begin, span.size - begin < step ? span.size - begin : step};
}

}  // namespace mscclpp::plan
