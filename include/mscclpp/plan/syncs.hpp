// Where the threads of a block have to wait for each other: derived from what its operations read and write.
#pragma once

#include <span>
#include <vector>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// What is put in order.
enum class SyncScope {
  Data,    ///< accesses to the same data by different transfers of a block
  Publish  ///< also transfers and the signals after them, waits and the operations that rely on them
};

/// Finds where a block needs a Sync: between transfers of which one writes what the other reads or writes (reads of
/// packets wait for their writes by themselves), and with SyncScope::Publish between transfers or waits and a following
/// Signal, Release or Flush, between waits (of all kinds) and following transfers, and at the ends of loops. A Barrier
/// is also a Sync. Of the syncs that the block has, those that order nothing are left out.
///
/// Overlaps: (operand, its chunks, another, its chunks) -> whether they have memory in common.
template <class Overlaps>
class SyncInsertion {
 public:
  constexpr SyncInsertion(std::span<const Operand> operands, SyncScope scope, const Overlaps& overlaps)
      : operands_(operands), scope_(scope), overlaps_(overlaps) {}
  constexpr ~SyncInsertion() = default;  // nvcc 13 does not take the implicit one for constexpr

  static constexpr std::int32_t sync = -1;

  /// The block as indices of its operations, and `sync` where one is needed, for the operation that follows.
  constexpr std::vector<std::int32_t> run(std::span<const Operation> operations) {
    std::vector<std::int32_t> result;
    forget();
    const auto isSync = [&](std::int32_t i) { return i == sync || operations[i].kind == OperationKind::Sync; };
    for (std::int32_t i = 0; i < countOf(operations); ++i) {
      const Operation& operation = operations[i];
      const bool ordersNothing =
          result.empty() || isSync(result.back()) || operations[result.back()].kind == OperationKind::Barrier;
      if (operation.kind == OperationKind::Sync && ordersNothing) continue;
      if (needsSync(operation)) {
        result.push_back(sync);
        forget();
      }
      result.push_back(i);
      note(operation);
    }
    // The end of the kernel orders what comes after it.
    while (!result.empty() && isSync(result.back())) result.pop_back();
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
      case OperationKind::LoopBegin:
      case OperationKind::LoopEnd:  // an iteration follows another
        return scope_ == SyncScope::Publish && (waited_ || !transfers_.empty());
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
        waited_ = waited_ || scope_ == SyncScope::Publish;
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
      if (anyOverlap(earlier, earlier.destinations, operation, operation.sources, true) ||
          anyOverlap(earlier, earlier.destinations, operation, operation.destinations, false) ||
          anyOverlap(earlier, earlier.sources, operation, operation.destinations, false))
        return true;
    return false;
  }
  constexpr bool anyOverlap(const Operation& a, Range of, const Operation& b, Range with, bool isReadOfWrite) const {
    for (const Operand& first : operands_.subspan(of.first, of.count))
      for (const Operand& second : operands_.subspan(with.first, with.count)) {
        const bool waitsByItself = isReadOfWrite && first.form == Form::Packet && second.form == Form::Packet;
        if (!waitsByItself && overlaps_(first, a.chunks, second, b.chunks)) return true;
      }
    return false;
  }

  std::span<const Operand> operands_;
  SyncScope scope_;
  const Overlaps& overlaps_;
  std::vector<Operation> transfers_;  // since the last Sync
  bool waited_ = false;
};

}  // namespace mscclpp::plan
