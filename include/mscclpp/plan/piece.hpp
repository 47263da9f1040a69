// Parts of messages, and which of them exist in short messages: the order that packets give is theirs.
#pragma once

#include <cstdint>

namespace mscclpp::plan {

/// Bytes of the message of a call: those of a cell of the chunks at a position (see Operation::position).
struct Piece {
  std::int32_t call = -1;
  std::int32_t position = -1;
  std::int32_t cell = -1;

  constexpr bool isSameData(const Piece& other) const { return call == other.call && position == other.position; }
  /// Whether it has bytes in messages of any size: the first cell of the first chunk of a part.
  constexpr bool isAlwaysPresent() const { return position == 0 && cell == 0; }
  /// Whether messages that have bytes here have some in `other`: chunks before are whole ones.
  constexpr bool implies(const Piece& other) const {
    return *this == other || (call == other.call && other.cell == 0 && other.position <= position);
  }
  friend constexpr bool operator==(const Piece&, const Piece&) = default;
};

/// The pieces of two accesses to one place. The calls may have messages of different sizes; an order between the two is
/// needed in all messages that have both pieces, and in the shortest of them the fewest packets are sent.
struct PiecePair {
  Piece earlier;
  Piece later;

  /// Whether `piece` has bytes whenever the two have.
  constexpr bool implies(const Piece& piece) const { return earlier.implies(piece) || later.implies(piece); }
  friend constexpr bool operator==(const PiecePair&, const PiecePair&) = default;
};

}  // namespace mscclpp::plan
