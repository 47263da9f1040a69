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

}  // namespace detail

/// Bytes of shared memory that the copy of a program takes.
MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytesOf(const BlockProgram& program) {
  return detail::bytesInProgram<Operation>(program.operationCount) +
         detail::bytesInProgram<Operand>(program.operandCount) +
         detail::bytesInProgram<std::int32_t>(program.referenceCount);
}

namespace detail {

template <class Entry, ThreadGroup Group>
MSCCLPP_INLINE const Entry* loadArray(const Group& group, const Entry* array, std::int32_t count, std::byte*& shared) {
  std::byte* const to = shared;
  mscclpp::copy(group, to, array, static_cast<std::size_t>(count) * sizeof(Entry));
  shared += bytesInProgram<Entry>(count);
  return reinterpret_cast<const Entry*>(to);
}

/// Copies a program to shared memory, which is close to all threads. Called by all threads of the block; syncs.
template <ThreadGroup Group>
MSCCLPP_INLINE BlockProgram loadProgram(const Group& group, const BlockProgram& program, std::byte* shared) {
  BlockProgram copied = program;
  copied.operations = loadArray(group, program.operations, program.operationCount, shared);
  copied.operands = loadArray(group, program.operands, program.operandCount, shared);
  copied.references = loadArray(group, program.references, program.referenceCount, shared);
  group.sync();
  return copied;
}

template <class T, class Execution>
MSCCLPP_INLINE void interpret(Execution& execution, const BlockProgram& program) {
  std::uint64_t iteration = 0;
  std::uint64_t iterations = 0;
  int loop = 0;
  MSCCLPP_NO_UNROLL
  for (int i = 0; i < program.operationCount; ++i) {
    const Operation& operation = program.operations[i];
    const auto operand = [&](int j) -> const Operand& {
      const int sources = operation.sources.count;
      return program.operands[j < sources ? operation.sources.first + j : operation.destinations.first + j - sources];
    };
    const auto reference = [&](int j) { return program.references[operation.references.first + j]; };
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
        loop = i;
        iteration = 0;
        iterations = execution.iterations(operation.unitBytes);
        execution.setIteration(operation.unitBytes, 0);
        break;
      case OperationKind::LoopEnd:
        if (++iteration < iterations) {
          execution.setIteration(program.operations[loop].unitBytes, iteration);
          i = loop;
        } else {
          execution.endLoop();
        }
        break;
    }
  }
}

}  // namespace detail

/// Executes a plan: the blocks of the grid are those of args.rank. Called by all threads of the grid, whose blocks are
/// all resident at once. T: the type of the elements. On a grid with shared memory, which has room for the longest of
/// the programs (sharedBytesOf), they are copied there.
template <class T, class GridType>
MSCCLPP_INLINE void interpret(const GridType& grid, const ExecutionArgs& args) {
  const auto block = grid.block();
  BlockExecution<T, decltype(grid.block()), RuntimeOp> execution(block, grid.blockIndex(), args, args.op);
  if (!execution.begin()) return;
  const BlockProgram& program = args.programs[grid.blockIndex()];
  if constexpr (SharedMemoryGrid<GridType>) {
    detail::interpret<T>(execution, detail::loadProgram(block, program, grid.sharedMemory()));
  } else {
    detail::interpret<T>(execution, program);
  }
  execution.end();
}

}  // namespace mscclpp::plan
