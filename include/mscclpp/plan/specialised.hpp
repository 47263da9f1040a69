// Plans as straight-line code: the operations of a block are constants, and each becomes the code of its shape.
#pragma once

#include "mscclpp/plan/block_execution.hpp"

#if defined(__CUDACC_RTC__)
#include <cuda/std/utility>
#else
#include <utility>
#endif

namespace mscclpp::plan {

// Code is made from a role: a type that says what successive blocks do, which are alike. Its static constexpr members:
//   firstBlock, blocks                             the blocks [firstBlock, firstBlock + blocks) of the rank
//   operationCount
//   Operation operations[], operationSteps[]       of the first block; and what to add for each further block, in
//                                                  position, share and index
//   Operand operands[], operandSteps[]             likewise: rank, channel and first
//   std::int32_t references[], referenceSteps[]
// Arrays without entries have one that is not used.

namespace detail {

#if defined(__CUDACC_RTC__)
template <int... i>
using IntegerSequence = cuda::std::integer_sequence<int, i...>;
template <int n>
using MakeSequence = cuda::std::make_integer_sequence<int, n>;
#else
template <int... i>
using IntegerSequence = std::integer_sequence<int, i...>;
template <int n>
using MakeSequence = std::make_integer_sequence<int, n>;
#endif

template <class Role, int i>
MSCCLPP_INLINE Operation operationOf(int block) {
  constexpr Operation first = Role::operations[i];
  constexpr Operation step = Role::operationSteps[i];
  Operation operation = first;
  operation.position += step.position * block;
  operation.share = static_cast<std::int16_t>(operation.share + step.share * block);
  operation.index += step.index * block;
  return operation;
}
template <class Role, int i>
MSCCLPP_INLINE Operand operandOf(int block) {
  constexpr Operand first = Role::operands[i];
  constexpr Operand step = Role::operandSteps[i];
  Operand operand = first;
  operand.rank = static_cast<std::int16_t>(operand.rank + step.rank * block);
  operand.channel = static_cast<std::int16_t>(operand.channel + step.channel * block);
  operand.first += step.first * block;
  return operand;
}
template <class Role, int i>
MSCCLPP_INLINE std::int32_t referenceOf(int block) {
  constexpr std::int32_t first = Role::references[i];
  constexpr std::int32_t step = Role::referenceSteps[i];
  return first + step * block;
}

/// The operands of a transfer, sources first. In registers where they are read at constant indices.
template <int n>
struct OperandList {
  Operand entries[n];
  MSCCLPP_INLINE const Operand& operator()(int i) const { return entries[i]; }
};
template <class Role, int sources, int destinations, int... s, int... d>
MSCCLPP_INLINE auto operandList(int block, IntegerSequence<s...>, IntegerSequence<d...>) {
  return OperandList<static_cast<int>(sizeof...(s) + sizeof...(d))>{
      {operandOf<Role, sources + s>(block)..., operandOf<Role, destinations + d>(block)...}};
}
template <int n>
struct ReferenceList {
  std::int32_t entries[n > 0 ? n : 1];
  MSCCLPP_INLINE std::int32_t operator()(int i) const { return entries[i]; }
};
template <class Role, int first, int... i>
MSCCLPP_INLINE auto referenceList(int block, IntegerSequence<i...>) {
  return ReferenceList<static_cast<int>(sizeof...(i))>{{referenceOf<Role, first + i>(block)...}};
}

/// The LoopEnd of a LoopBegin.
template <class Role>
constexpr int endOfLoop(int i) {
  while (Role::operations[i].kind != OperationKind::LoopEnd) ++i;
  return i;
}

template <class Role, int i, class Execution>
MSCCLPP_INLINE void runOperation(Execution& execution, int block) {
  constexpr Operation constant = Role::operations[i];
  const Operation operation = operationOf<Role, i>(block);
  if constexpr (constant.kind == OperationKind::Transfer) {
    constexpr int sources = constant.sources.count;
    constexpr int destinations = constant.destinations.count;
    const auto operands = operandList<Role, constant.sources.first, constant.destinations.first>(
        block, MakeSequence<sources>{}, MakeSequence<destinations>{});
    if constexpr (Role::operands[constant.destinations.first].access == Access::Port) {
      execution.transferThroughPort(operation, operands(0), operands(1), i);
    } else if constexpr (sources <= mostUnrolled && destinations <= mostUnrolled) {
      execution.template transfer<sources, destinations>(operation, operands, i);
    } else {
      execution.template transfer<0, 0>(operation, operands, i);
    }
  } else if constexpr (constant.kind == OperationKind::Sync) {
    execution.sync();
  } else if constexpr (constant.kind == OperationKind::Barrier) {
    execution.barrier(operation, i);
  } else {
    const auto references = referenceList<Role, constant.references.first>(  //
        block, MakeSequence<constant.references.count>{});
    if constexpr (constant.kind == OperationKind::Signal) execution.signal(operation, references);
    if constexpr (constant.kind == OperationKind::Wait) execution.wait(operation, references, i);
    if constexpr (constant.kind == OperationKind::Flush) execution.flush(operation, references);
    if constexpr (constant.kind == OperationKind::Acquire) execution.acquire(operation, references, i);
    if constexpr (constant.kind == OperationKind::Release) execution.release(operation, references);
  }
}

/// Where operations [begin, end), more than one, are divided: near the middle, and not in a loop. `end` if they are one
/// loop.
template <class Role>
constexpr int middleOf(int begin, int end) {
  const int half = begin + (end - begin) / 2;
  int before = begin;
  for (int i = begin; i < half;) {
    before = i;
    i = Role::operations[i].kind == OperationKind::LoopBegin ? endOfLoop<Role>(i) + 1 : i + 1;
    if (i >= half && i < end) return i;
  }
  return before > begin ? before : end;
}

/// Operations [begin, end). Halved, so that templates are nested as deep as the logarithm of their number.
template <class Role, int begin, int end, class Execution>
MSCCLPP_INLINE void runOperations(Execution& execution, int block) {
  if constexpr (end - begin == 1) {
    runOperation<Role, begin>(execution, block);
  } else if constexpr (begin < end) {
    constexpr int middle = middleOf<Role>(begin, end);
    if constexpr (middle < end) {
      runOperations<Role, begin, middle>(execution, block);
      runOperations<Role, middle, end>(execution, block);
    } else {
      constexpr std::uint64_t unit = Role::operations[begin].unitBytes;
      const std::uint64_t iterations = execution.iterations(unit);
      MSCCLPP_NO_UNROLL
      for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
        execution.setIteration({unit, iteration});
        runOperations<Role, begin + 1, end - 1>(execution, block);
      }
      execution.setIteration({});
    }
  }
}

template <class Role, class Execution>
MSCCLPP_INLINE bool runRole(Execution& execution, int block) {
  if (block < Role::firstBlock || block >= Role::firstBlock + Role::blocks) return false;
  runOperations<Role, 0, Role::operationCount>(execution, block - Role::firstBlock);
  return true;
}

}  // namespace detail

/// Executes a plan: the blocks of the grid are those of args.rank, whose roles are Roles. Called by all threads of the
/// grid, whose blocks are all resident at once. T: the type of the elements; Op: the operator, StatelessOperator;
/// Shape: what is known of the calls (UnknownShape).
template <class T, class Op, class Shape, class... Roles, class GridType>
MSCCLPP_INLINE void executeRoles(const GridType& grid, const ExecutionArgs& args) {
  const auto block = grid.block();
  BlockExecution<T, decltype(grid.block()), Op, Shape> execution(block, grid.blockIndex(), args, Op{});
  if (!execution.begin()) return;
  (detail::runRole<Roles>(execution, grid.blockIndex()) || ...);
  execution.end();
}

}  // namespace mscclpp::plan
