// Signals as the 32 bits that a write-with-immediate carries.
//
// A code is (2 bits: what, 12 bits: which target, 18 bits: number). A target is a word that the sender signals; it names
// each once, by region and offset, and from then on by an index of its own choice, so that the usual signal is one code.
// A number of more than 18 bits is sent in pieces, the upper ones first. The codes of a connection arrive in order.
#pragma once

#include <array>
#include <cstdint>

namespace mscclpp::detail::ib {

struct SignalCode {
  enum class What : std::uint32_t {
    Piece,   ///< upper bits of the number to come
    Region,  ///< the target lies in this region
    Offset,  ///< ... at this offset
    Add,     ///< add the number to the target
  };
  static constexpr int numberBits = 18;
  static constexpr int targetBits = 12;
  static constexpr std::uint32_t targets = 1U << targetBits;

  What what;
  std::uint32_t target;
  std::uint32_t number;

  constexpr std::uint32_t encode() const {
    return static_cast<std::uint32_t>(what) << (targetBits + numberBits) | target << numberBits | number;
  }
  static constexpr SignalCode decode(std::uint32_t bits) {
    return {static_cast<What>(bits >> (targetBits + numberBits)), bits >> numberBits & (targets - 1),
            bits & ((1U << numberBits) - 1)};
  }
};

/// The codes for one number: pieces, then `what`.
struct SignalCodes {
  std::array<SignalCode, 4> codes;
  int count;
};

constexpr SignalCodes encodeNumber(SignalCode::What what, std::uint32_t target, std::uint64_t number) {
  constexpr std::uint64_t mask = (1U << SignalCode::numberBits) - 1;
  SignalCodes result{};
  int pieces = 1;
  while (pieces < 4 && number >> (pieces * SignalCode::numberBits) != 0) ++pieces;
  for (int piece = pieces; piece-- > 0;) {
    const auto bits = static_cast<std::uint32_t>(number >> (piece * SignalCode::numberBits) & mask);
    result.codes[static_cast<std::size_t>(result.count++)] = {piece == 0 ? what : SignalCode::What::Piece, target,
                                                              bits};
  }
  return result;
}

/// Puts the pieces of numbers together again.
class NumberReader {
 public:
  /// The number that the code completes; meaningless for a piece.
  constexpr std::uint64_t add(const SignalCode& code) {
    const std::uint64_t number = upper_ << SignalCode::numberBits | code.number;
    upper_ = code.what == SignalCode::What::Piece ? number : 0;
    return number;
  }

 private:
  std::uint64_t upper_ = 0;
};

}  // namespace mscclpp::detail::ib
