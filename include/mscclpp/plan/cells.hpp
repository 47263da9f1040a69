// The cells that a chunk is divided into while a plan is checked: each is read and written whole.
//
// Shares end at multiples of 16 bytes, so that how parts of different numbers of shares lie to each other depends on
// the size of the chunk. A byte belongs to one share of each number of shares, and any combination may occur: a chunk
// has a cell for each combination. Inside loops shares are parts of an iteration's piece, and count for themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Chunks are followed in at most so many cells.
inline constexpr int maxCellsPerChunk = 1024;

/// How all chunks of a plan are divided. Cells are numbered so that those of an iteration lie together, and that cell 0
/// has the first byte.
class CellLayout {
 public:
  constexpr explicit CellLayout(std::int32_t iterations) : iterations_(iterations) {}

  /// Takes into account an operation that does one of `shares` shares. Returns false if there would be too many cells.
  constexpr bool divide(bool inLoop, std::int32_t shares) {
    if (shares == 1 || find(inLoop, shares) != nullptr) return true;
    if (cellsPerIteration_ > maxCellsPerChunk / shares) return false;
    axes_.push_back({inLoop, shares, cellsPerIteration_});
    cellsPerIteration_ *= shares;
    return true;
  }

  constexpr std::int32_t iterations() const { return iterations_; }
  constexpr std::int32_t cells() const { return cells(iterations_); }
  constexpr std::int32_t iterationOf(std::int32_t cell) const { return cell / cellsPerIteration_; }

  /// The cells of a call with so many iterations.
  constexpr std::int32_t cells(std::int32_t iterations) const { return iterations * cellsPerIteration_; }

  /// The cells of share `share` of `shares`. iteration: of the loop; -1: outside of one, the share of all `iterations`
  /// iterations of the call.
  constexpr std::vector<std::int32_t> select(std::int32_t iteration, std::int32_t iterations, std::int32_t share,
                                             std::int32_t shares) const {
    const Axis* axis = shares == 1 ? nullptr : find(iteration >= 0, shares);
    const std::int32_t first = iteration < 0 ? 0 : iteration * cellsPerIteration_;
    const std::int32_t last = iteration < 0 ? cells(iterations) : first + cellsPerIteration_;
    std::vector<std::int32_t> selected;
    for (std::int32_t cell = first; cell < last; ++cell)
      if (axis == nullptr || cell / axis->stride % shares == share) selected.push_back(cell);
    return selected;
  }

 private:
  struct Axis {
    bool inLoop;
    std::int32_t shares;
    std::int32_t stride;
  };
  constexpr const Axis* find(bool inLoop, std::int32_t shares) const {
    for (const Axis& axis : axes_)
      if (axis.inLoop == inLoop && axis.shares == shares) return &axis;
    return nullptr;
  }

  std::int32_t iterations_;
  std::int32_t cellsPerIteration_ = 1;
  std::vector<Axis> axes_;
};

/// The layout of a plan that has no fault of structure.
constexpr CellLayout cellLayoutOf(const Plan& plan, std::int32_t iterations) {
  CellLayout layout(iterations);
  for (const Block& block : plan.blocks) {
    bool inLoop = false;
    for (std::int32_t i = block.operations.first; i < block.operations.first + block.operations.count; ++i) {
      const Operation& operation = plan.operations[i];
      if (operation.kind == OperationKind::LoopBegin) inLoop = true;
      if (operation.kind == OperationKind::LoopEnd) inLoop = false;
      if (operation.kind == OperationKind::Transfer) layout.divide(inLoop, operation.shares);
    }
  }
  return layout;
}

}  // namespace mscclpp::plan
