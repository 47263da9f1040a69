// The windows in which an interpreter copies a program to shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/resolved_program.hpp"

namespace mscclpp::plan {

/// How a program is copied to shared memory: a window of its operations at a time.
struct ProgramWindows {
  std::vector<Range> ofOperations;  ///< of each operation, the window that it is in: BlockProgram::windows
  std::size_t bytes = 0;            ///< of the largest one in shared memory
};

namespace detail {

/// The operations from LoopBegin to LoopEnd that operation `inside` lies behind the first of; empty if it is in none.
constexpr Range loopAround(const BlockProgram& program, std::int32_t inside) {
  std::int32_t begin = inside - 1;
  while (begin >= 0 && program.operations[begin].kind != OperationKind::LoopBegin) {
    if (program.operations[begin].kind == OperationKind::LoopEnd) return {};
    --begin;
  }
  if (begin < 0) return {};
  std::int32_t end = inside;
  while (end < program.operationCount && program.operations[end].kind != OperationKind::LoopEnd) ++end;
  return end == program.operationCount ? Range{} : Range{begin, end + 1 - begin};
}

}  // namespace detail

/// Windows of as many operations as take `mostBytes` at most, or of one operation; one window if the program fits. A
/// window ends before a loop of which it has only a part, if a window can have the whole loop: other loops are copied
/// again in each iteration. The arrays of `program` are read: in the memory of the caller. Its windows are not.
constexpr ProgramWindows windowsOf(const BlockProgram& program, std::size_t mostBytes) {
  ProgramWindows result;
  const auto bytesOf = [&](const Range& window) { return detail::sharedBytesOf(detail::partOf(program, window)); };
  for (std::int32_t first = 0; first < program.operationCount;) {
    Range window{first, 1};
    while (first + window.count < program.operationCount && bytesOf({first, window.count + 1}) <= mostBytes)
      ++window.count;
    const std::int32_t end = first + window.count;
    if (end < program.operationCount) {
      const Range loop = detail::loopAround(program, end);
      if (loop.first > first && bytesOf(loop) <= mostBytes) window.count = loop.first - first;
    }
    if (bytesOf(window) > result.bytes) result.bytes = bytesOf(window);
    for (std::int32_t i = 0; i < window.count; ++i) result.ofOperations.push_back(window);
    first += window.count;
  }
  return result;
}

}  // namespace mscclpp::plan
