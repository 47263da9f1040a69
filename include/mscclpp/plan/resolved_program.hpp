// A program as a block interprets it: in shared memory, with addresses in place of chunks.
//
// What an operation moves, and where, follows from the arguments of the call by some divisions and table lookups. An
// interpreter would spend more instructions on them than on the data of a short message, one operation after the other.
// Here threads resolve the operations next to each other, before the block begins with the first one.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/plan/execution.hpp"
#include "mscclpp/plan/packs.hpp"

namespace mscclpp::plan {

/// An operand, with the address at which its chunk begins.
struct ResolvedOperand {
  std::byte* address;  ///< of scratch that alternates: in the half of even calls
  Form form;
  Access access;
  bool isScratch;
  std::int16_t writer;  ///< Place::writer
};

/// A part of a program in shared memory: operations [first, first + count) of the program. Arrays begin with the first
/// operation's entries.
struct ResolvedPart {
  const Operation* operations;
  const ByteSpan*
      spans;  ///< of each operation, if it is a transfer: the bytes of the chunk that it moves, unless looped
  const ResolvedOperand* operands;
  const std::int32_t* references;
  std::int32_t first;
  std::int32_t count;
};

namespace detail {

/// Bytes of an array in shared memory, where arrays begin at multiples of 16.
template <class T>
MSCCLPP_HOST_DEVICE constexpr std::size_t bytesOfArray(std::int32_t count) {
  return (static_cast<std::size_t>(count) * sizeof(T) + 15) / 16 * 16;
}

/// The operations `window` of a program.
MSCCLPP_HOST_DEVICE constexpr BlockProgram partOf(const BlockProgram& program, const Range& window) {
  const std::int32_t last = window.first + window.count;
  const bool isLast = last == program.operationCount;
  const Operation& begin = program.operations[window.first];
  const Operation& end = program.operations[isLast ? window.first : last];
  const std::int32_t operandEnd = isLast ? program.operandCount : end.sources.first;
  const std::int32_t referenceEnd = isLast ? program.referenceCount : end.references.first;
  return {program.operations + window.first,
          program.operands + begin.sources.first,
          program.references + begin.references.first,
          nullptr,
          window.count,
          operandEnd - begin.sources.first,
          referenceEnd - begin.references.first};
}

MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytesOf(const BlockProgram& part) {
  return bytesOfArray<Operation>(part.operationCount) + bytesOfArray<ByteSpan>(part.operationCount) +
         bytesOfArray<ResolvedOperand>(part.operandCount) + bytesOfArray<std::int32_t>(part.referenceCount);
}

template <class T>
MSCCLPP_INLINE T* takeArray(std::byte*& shared, std::int32_t count) {
  T* const array = reinterpret_cast<T*>(shared);
  shared += bytesOfArray<T>(count);
  return array;
}

}  // namespace detail

/// Resolves the operations `window` in `shared`. Called by all threads of the block, which sync before they read the
/// part. Reads nothing that calls change.
template <ThreadGroup Group>
MSCCLPP_INLINE ResolvedPart resolve(const Group& group, const BlockProgram& program, const Range& window,
                                    const ExecutionArgs& args, std::byte* shared) {
  const BlockProgram part = detail::partOf(program, window);
  auto* const operations = detail::takeArray<Operation>(shared, part.operationCount);
  auto* const spans = detail::takeArray<ByteSpan>(shared, part.operationCount);
  auto* const operands = detail::takeArray<ResolvedOperand>(shared, part.operandCount);
  auto* const references = detail::takeArray<std::int32_t>(shared, part.referenceCount);
  mscclpp::copy(group, operations, part.operations, static_cast<std::size_t>(part.operationCount) * sizeof(Operation));
  mscclpp::copy(group, references, part.references,
                static_cast<std::size_t>(part.referenceCount) * sizeof(std::int32_t));

  // Some threads for each operation: most have few operands.
  const int lanes = group.size() < 8 ? 1 : 8;
  const int teams = group.size() / lanes;
  const int lane = group.rank() % lanes;
  const int team = group.rank() / lanes;
  MSCCLPP_NO_UNROLL
  for (std::int32_t i = team < teams ? team : part.operationCount; i < part.operationCount; i += teams) {
    const Operation& operation = part.operations[i];
    if (operation.kind != OperationKind::Transfer) continue;
    if (lane == 0) spans[i] = spanOf(args.message, operation, 0, Iteration{});
    const std::int32_t begin = operation.sources.first - part.operations[0].sources.first;
    MSCCLPP_NO_UNROLL
    for (std::int32_t j = lane; j < operation.sources.count + operation.destinations.count; j += lanes) {
      const Operand operand = part.operands[begin + j];
      operands[begin + j] = {addressOf(args, args.message, operand, operand.first), operand.form, operand.access,
                             operand.buffer == BufferKind::Scratch, operand.channel};
    }
  }
  return {operations, spans, operands, references, window.first, part.operationCount};
}

}  // namespace mscclpp::plan
