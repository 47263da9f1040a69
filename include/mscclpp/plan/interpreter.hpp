// The interpreter of plans: a block reads its operations from memory, resolves them, and carries them out.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/plan/block_execution.hpp"
#include "mscclpp/plan/resolved_program.hpp"

namespace mscclpp::plan {

namespace detail {

/// The loop that a block is in.
struct LoopState {
  int begin;  ///< the LoopBegin
  std::uint64_t iterations;
  Iteration iteration;
};

/// Interprets a part of a program from operation `from` of the program on. Returns the operation to go on with: the
/// first behind the part, or one before it.
template <class Execution>
MSCCLPP_INLINE int interpretPart(Execution& execution, const ResolvedPart& part, const BlockProgram& program, int from,
                                 LoopState& loop) {
  const int firstOperand = part.operations[0].sources.first;
  const int firstReference = part.operations[0].references.first;
  int i = from;
  MSCCLPP_NO_UNROLL
  for (; i < part.first + part.count; ++i) {
    const Operation& operation = part.operations[i - part.first];
    const auto operand = [&](int j) -> const ResolvedOperand& {
      return part.operands[operation.sources.first - firstOperand + j];
    };
    const auto reference = [&](int j) { return part.references[operation.references.first - firstReference + j]; };
    // The most frequent first, without a jump table.
    if (operation.kind == OperationKind::Transfer) {
      if (operand(operation.sources.count).access == Access::Port) {
        const Operand* const operands = program.operands + operation.sources.first;
        execution.transferThroughPort(operation, operands[0], operands[1], operation.origin);
      } else {
        execution.transferResolved(operation, part.spans[i - part.first], operand, operation.origin);
      }
      continue;
    }
    if (operation.kind == OperationKind::Sync) {
      execution.sync();
      continue;
    }
    switch (operation.kind) {
      case OperationKind::Signal:
        execution.signal(operation, reference);
        break;
      case OperationKind::Wait:
        execution.wait(operation, reference, operation.origin);
        break;
      case OperationKind::Flush:
        execution.flush(operation, reference);
        break;
      case OperationKind::Barrier:
        execution.barrier(operation, operation.origin);
        break;
      case OperationKind::Acquire:
        execution.acquire(operation, reference, operation.origin);
        break;
      case OperationKind::Release:
        execution.release(operation, reference);
        break;
      case OperationKind::LoopBegin:
        loop = {i, execution.iterations(operation.unitBytes), {operation.unitBytes, 0}};
        execution.setIteration(loop.iteration);
        break;
      case OperationKind::LoopEnd:
        if (++loop.iteration.index < loop.iterations) {
          execution.setIteration(loop.iteration);
          i = loop.begin;
          if (i < part.first) return i + 1;
        } else {
          execution.setIteration({});
        }
        break;
      case OperationKind::Transfer:
      case OperationKind::Sync:
        break;
    }
  }
  return i;
}

}  // namespace detail

/// Executes a plan: the blocks of the grid are those of args.rank. Called by all threads of the grid, whose blocks are
/// all resident at once, with room in shared memory for the largest window of the programs (windowsOf). T: the type of
/// the elements.
///
/// awaitPrevious(): returns once what was enqueued before is complete. Before it is called, only the programs are read,
/// which calls do not change.
template <class T, SharedMemoryGrid GridType, class AwaitPrevious>
MSCCLPP_INLINE void interpret(const GridType& grid, const ExecutionArgs& args, const AwaitPrevious& awaitPrevious) {
  const auto block = grid.block();
  const BlockProgram program = args.programs[grid.blockIndex()];
  ResolvedPart part{};
  if (program.operationCount != 0) part = resolve(block, program, program.windows[0], args, grid.sharedMemory());
  block.sync();
  awaitPrevious();
  BlockExecution<T, decltype(grid.block()), RuntimeOp> execution(block, grid.blockIndex(), args, args.op);
  if (!execution.begin()) return;
  detail::LoopState loop{};
  MSCCLPP_NO_UNROLL
  for (int i = 0; i < program.operationCount;) {
    if (i < part.first || i >= part.first + part.count) {
      block.sync();  // the part is not read any more
      part = resolve(block, program, program.windows[i], args, grid.sharedMemory());
      block.sync();
    }
    i = detail::interpretPart(execution, part, program, i, loop);
  }
  execution.end();
}

}  // namespace mscclpp::plan
