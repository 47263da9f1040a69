// The interpreter of plans: a block reads its operations from memory.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/plan/block_execution.hpp"

namespace mscclpp::plan {

namespace detail {

/// Bytes of an array in the copy of a program, which begins at a multiple of 16.
template <class T>
MSCCLPP_HOST_DEVICE constexpr std::size_t bytesInProgram(std::int32_t count) {
  return (static_cast<std::size_t>(count) * sizeof(T) + 15) / 16 * 16;
}

/// The part of a program from operation `first` on, `program.window` operations at most.
MSCCLPP_HOST_DEVICE constexpr BlockProgram partOf(const BlockProgram& program, std::int32_t first) {
  const bool isLast = program.operationCount - first <= program.window;
  const Operation& begin = program.operations[first];
  const Operation& end = program.operations[isLast ? first : first + program.window];
  const std::int32_t operandEnd = isLast ? program.operandCount : end.sources.first;
  const std::int32_t referenceEnd = isLast ? program.referenceCount : end.references.first;
  return {program.operations + first,
          program.operands + begin.sources.first,
          program.references + begin.references.first,
          isLast ? program.operationCount - first : program.window,
          operandEnd - begin.sources.first,
          referenceEnd - begin.references.first,
          program.window};
}

MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytesOf(const BlockProgram& part) {
  return bytesInProgram<Operation>(part.operationCount) + bytesInProgram<Operand>(part.operandCount) +
         bytesInProgram<std::int32_t>(part.referenceCount);
}

}  // namespace detail

/// How a program is copied to shared memory: `operations` of it at a time, which take `bytes` at most.
struct ProgramWindow {
  std::int32_t operations;
  std::size_t bytes;
};

/// The largest window that takes `mostBytes` at most, or one operation; the whole program if it fits. The arrays are
/// read: in the memory of the caller.
constexpr ProgramWindow windowOf(BlockProgram program, std::size_t mostBytes) {
  for (program.window = program.operationCount;; program.window = (program.window + 1) / 2) {
    std::size_t bytes = 0;
    for (std::int32_t first = 0; first < program.operationCount; first += program.window) {
      const std::size_t needed = detail::sharedBytesOf(detail::partOf(program, first));
      if (needed > bytes) bytes = needed;
    }
    if (bytes <= mostBytes || program.window <= 1) return {program.window, bytes};
  }
}

namespace detail {

template <class Entry, ThreadGroup Group>
MSCCLPP_INLINE const Entry* loadArray(const Group& group, const Entry* array, std::int32_t count, std::byte*& shared) {
  std::byte* const to = shared;
  mscclpp::copy(group, to, array, static_cast<std::size_t>(count) * sizeof(Entry));
  shared += bytesInProgram<Entry>(count);
  return reinterpret_cast<const Entry*>(to);
}

/// Copies a part of a program to shared memory, which is close to all threads. Called by all threads of the block;
/// syncs.
template <ThreadGroup Group>
MSCCLPP_INLINE BlockProgram loadProgram(const Group& group, const BlockProgram& part, std::byte* shared) {
  BlockProgram copied = part;
  copied.operations = loadArray(group, part.operations, part.operationCount, shared);
  copied.operands = loadArray(group, part.operands, part.operandCount, shared);
  copied.references = loadArray(group, part.references, part.referenceCount, shared);
  group.sync();
  return copied;
}

/// The loop that a block is in.
struct LoopState {
  int begin;  ///< the LoopBegin
  std::uint64_t unit;
  std::uint64_t iteration;
  std::uint64_t iterations;
};

/// Interprets a part of a program, whose first operation is the program's operation `base`, from operation `from` of
/// the program on. Returns the operation to go on with: the first behind the part, or one before it.
template <class T, class Execution>
MSCCLPP_INLINE int interpretPart(Execution& execution, const BlockProgram& part, int base, int from, LoopState& loop) {
  if (part.operationCount == 0) return base;
  const int firstOperand = part.operations[0].sources.first;
  const int firstReference = part.operations[0].references.first;
  int i = from;
  MSCCLPP_NO_UNROLL
  for (; i < base + part.operationCount; ++i) {
    const Operation& operation = part.operations[i - base];
    const auto operand = [&](int j) -> const Operand& {
      const int sources = operation.sources.count;
      const int index = j < sources ? operation.sources.first + j : operation.destinations.first + j - sources;
      return part.operands[index - firstOperand];
    };
    const auto reference = [&](int j) { return part.references[operation.references.first + j - firstReference]; };
    switch (operation.kind) {
      case OperationKind::Transfer:
        if (operand(operation.sources.count).access == Access::Port) {
          execution.transferThroughPort(operation, operand(0), operand(1), i);
        } else {
          execution.template transfer<0, 0>(operation, operand, i);
        }
        break;
      case OperationKind::Signal:
        execution.signal(operation, reference);
        break;
      case OperationKind::Wait:
        execution.wait(operation, reference, i);
        break;
      case OperationKind::Flush:
        execution.flush(operation, reference);
        break;
      case OperationKind::Sync:
        execution.sync();
        break;
      case OperationKind::Barrier:
        execution.barrier(operation, i);
        break;
      case OperationKind::Acquire:
        execution.acquire(operation, reference, i);
        break;
      case OperationKind::Release:
        execution.release(operation, reference);
        break;
      case OperationKind::LoopBegin:
        loop = {i, operation.unitBytes, 0, execution.iterations(operation.unitBytes)};
        execution.setIteration(loop.unit, 0);
        break;
      case OperationKind::LoopEnd:
        if (++loop.iteration < loop.iterations) {
          execution.setIteration(loop.unit, loop.iteration);
          i = loop.begin;
          if (i < base) return i + 1;
        } else {
          execution.endLoop();
        }
        break;
    }
  }
  return i;
}

}  // namespace detail

/// Executes a plan: the blocks of the grid are those of args.rank. Called by all threads of the grid, whose blocks are
/// all resident at once. T: the type of the elements. On a grid with shared memory, which has room for the largest
/// window of the programs (windowOf), they are copied there, window by window.
template <class T, class GridType>
MSCCLPP_INLINE void interpret(const GridType& grid, const ExecutionArgs& args) {
  const auto block = grid.block();
  BlockExecution<T, decltype(grid.block()), RuntimeOp> execution(block, grid.blockIndex(), args, args.op);
  if (!execution.begin()) return;
  const BlockProgram& program = args.programs[grid.blockIndex()];
  detail::LoopState loop{};
  if constexpr (SharedMemoryGrid<GridType>) {
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < program.operationCount;) {
      if (i != 0) block.sync();  // the part before is not read any more
      const int base = i - i % program.window;
      const BlockProgram part = detail::loadProgram(block, detail::partOf(program, base), grid.sharedMemory());
      i = detail::interpretPart<T>(execution, part, base, i, loop);
    }
  } else {
    detail::interpretPart<T>(execution, program, 0, 0, loop);
  }
  execution.end();
}

}  // namespace mscclpp::plan
