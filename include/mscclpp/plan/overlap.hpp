// Which operands of a plan are the same memory.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// In a call in place: the input chunk that is output chunk `chunk` of a rank with so many input chunks; -1: none.
constexpr std::int32_t inputOfOutput(const Header& header, std::int32_t inputChunks, std::int32_t rank,
                                     std::int32_t chunk) {
  std::int32_t input = chunk;
  const std::int32_t own = rank * header.chunksPerPart;
  if (header.collective == CollectiveKind::AllGather || header.collective == CollectiveKind::Gather) input -= own;
  if (header.collective == CollectiveKind::ReduceScatter || header.collective == CollectiveKind::Scatter) input += own;
  return input >= 0 && input < inputChunks ? input : -1;
}

/// The operand, from its first chunk on, by the one name that its memory has: in place, that of the input. inputChunks:
/// rank -> their number.
template <class InputChunks>
constexpr Operand canonical(const Header& header, const InputChunks& inputChunks, Operand operand) {
  if (!header.inPlace || operand.buffer != BufferKind::Output) return operand;
  const std::int32_t input = inputOfOutput(header, inputChunks(operand.rank), operand.rank, operand.first);
  if (input < 0) return operand;
  operand.buffer = BufferKind::Input;
  operand.first = input;
  return operand;
}

/// Whether two operands of so many chunks have a chunk in common. Of a switch channel: in the memory of their own rank.
template <class InputChunks>
constexpr bool overlap(const Header& header, const InputChunks& inputChunks, const Operand& a, std::int32_t chunksOfA,
                       const Operand& b, std::int32_t chunksOfB) {
  if (a.rank != b.rank) return false;
  if (a.buffer == b.buffer) return a.first < b.first + chunksOfB && b.first < a.first + chunksOfA;
  if (!header.inPlace || a.buffer == BufferKind::Scratch || b.buffer == BufferKind::Scratch) return false;
  const auto nameOf = [&](Operand operand, std::int32_t i) {
    operand.first += i;
    return canonical(header, inputChunks, operand);
  };
  for (std::int32_t i = 0; i < chunksOfA; ++i) {
    const Operand x = nameOf(a, i);
    for (std::int32_t k = 0; k < chunksOfB; ++k) {
      const Operand y = nameOf(b, k);
      if (x.buffer == y.buffer && x.first == y.first) return true;
    }
  }
  return false;
}

}  // namespace mscclpp::plan
