// Signals as the 32 bits of immediate data of a write-with-immediate.
//
// A code consists of 2 bits opcode, 12 bits target index and 18 bits number. A target is a word that the sender
// signals; it is announced once, by region and offset, and from then on identified by an index of the sender's choice,
// so that the usual signal is one code. A number of more than 18 bits is sent in fragments, the upper bits first. The
// codes of a connection arrive in order.
#pragma once

#include <array>
#include <cstdint>

namespace mscclpp::detail::ib {

struct SignalCode {
  enum class Opcode : std::uint32_t {
    Piece,   ///< upper bits of the number that follows
    Region,  ///< the target is in this region
    Offset,  ///< ... at this offset
    Add,     ///< add the number to the target
  };
  static constexpr int numberBits = 18;
  static constexpr int targetBits = 12;
  static constexpr std::uint32_t targets = 1U << targetBits;

  Opcode opcode;
  std::uint32_t target;
  std::uint32_t number;

  constexpr std::uint32_t encode() const {
    return static_cast<std::uint32_t>(opcode) << (targetBits + numberBits) | target << numberBits | number;
  }
  static constexpr SignalCode decode(std::uint32_t bits) {
    return {static_cast<Opcode>(bits >> (targetBits + numberBits)), bits >> numberBits & (targets - 1),
            bits & ((1U << numberBits) - 1)};
  }
};

/// The codes for one number: fragments, then `what`.
struct SignalCodes {
  std::array<SignalCode, 4> codes;
  int count;
};

constexpr SignalCodes encodeNumber(SignalCode::Opcode opcode, std::uint32_t target, std::uint64_t number) {
  constexpr std::uint64_t mask = (1U << SignalCode::numberBits) - 1;
  SignalCodes result{};
  int pieces = 1;
  while (pieces < 4 && number >> (pieces * SignalCode::numberBits) != 0) ++pieces;
  for (int piece = pieces; piece-- > 0;) {
    const auto bits = static_cast<std::uint32_t>(number >> (piece * SignalCode::numberBits) & mask);
    result.codes[static_cast<std::size_t>(result.count++)] = {piece == 0 ? opcode : SignalCode::Opcode::Piece, target,
                                                              bits};
  }
  return result;
}

/// Reassembles numbers from their fragments.
class NumberDecoder {
 public:
  /// The number that the code completes; meaningless for a fragment.
  constexpr std::uint64_t add(const SignalCode& code) {
    const std::uint64_t number = upper_ << SignalCode::numberBits | code.number;
    upper_ = code.opcode == SignalCode::Opcode::Piece ? number : 0;
    return number;
  }

 private:
  std::uint64_t upper_ = 0;
};

}  // namespace mscclpp::detail::ib
