// Where the threads of a block have to wait for each other: derived from what its operations read and write.
#pragma once

#include <span>
#include <vector>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Whether two operands of a rank's operations have a byte in common, given the number of chunks of each. Switch
/// operands are taken to touch the buffers of all ranks. In place: whether input and output are one buffer.
constexpr bool overlap(const Operand& a, std::int32_t chunksOfA, const Operand& b, std::int32_t chunksOfB,
                       bool inPlace) {
  const bool everywhere = a.access == Access::Switch || b.access == Access::Switch;
  if (a.rank != b.rank && !everywhere) return false;
  if (a.buffer != b.buffer)  // in place, which chunk is which depends on the collective
    return inPlace && a.buffer != BufferKind::Scratch && b.buffer != BufferKind::Scratch;
  return a.first < b.first + chunksOfB && b.first < a.first + chunksOfA;
}

/// Copies the operations of a block and adds each Sync that their order needs, and no other: between transfers of which
/// one writes what the other reads or writes, between transfers or waits and a following Signal or Release, and between
/// waits (of all kinds) and following transfers. A Barrier is also a Sync.
class SyncInsertion {
 public:
  constexpr SyncInsertion(std::span<const Operand> operands, bool inPlace) : operands_(operands), inPlace_(inPlace) {}
  constexpr ~SyncInsertion() = default;  // nvcc 13 does not take the implicit one for constexpr

  constexpr std::vector<Operation> run(std::span<const Operation> operations) {
    std::vector<Operation> result;
    forget();
    for (const Operation& operation : operations) {
      if (needsSync(operation)) {
        result.push_back({.kind = OperationKind::Sync, .origin = operation.origin});
        forget();
      }
      result.push_back(operation);
      note(operation);
    }
    return result;
  }

 private:
  constexpr bool needsSync(const Operation& operation) const {
    switch (operation.kind) {
      case OperationKind::Transfer:
        return waited_ || conflicts(operation);
      case OperationKind::Signal:
      case OperationKind::Release:
      case OperationKind::Flush:
        return waited_ || !transfers_.empty();
      case OperationKind::LoopBegin:
      case OperationKind::LoopEnd:  // an iteration follows another
        return waited_ || !transfers_.empty();
      default:
        return false;
    }
  }

  constexpr void note(const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::Transfer:
        transfers_.push_back(operation);
        break;
      case OperationKind::Wait:
      case OperationKind::Acquire:
      case OperationKind::Flush:
        waited_ = true;
        break;
      case OperationKind::Sync:
      case OperationKind::Barrier:
        forget();
        break;
      default:
        break;
    }
  }

  constexpr void forget() {
    transfers_.clear();
    waited_ = false;
  }

  constexpr bool conflicts(const Operation& operation) const {
    for (const Operation& earlier : transfers_)
      if (anyOverlap(earlier, earlier.destinations, operation, operation.sources) ||
          anyOverlap(earlier, earlier.destinations, operation, operation.destinations) ||
          anyOverlap(earlier, earlier.sources, operation, operation.destinations))
        return true;
    return false;
  }
  constexpr bool anyOverlap(const Operation& a, Range of, const Operation& b, Range with) const {
    for (const Operand& first : operands_.subspan(of.first, of.count))
      for (const Operand& second : operands_.subspan(with.first, with.count))
        if (overlap(first, a.chunks, second, b.chunks, inPlace_)) return true;
    return false;
  }

  std::span<const Operand> operands_;
  bool inPlace_;
  std::vector<Operation> transfers_;  // since the last Sync
  bool waited_ = false;
};

}  // namespace mscclpp::plan
