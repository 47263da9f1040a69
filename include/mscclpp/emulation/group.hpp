// Groups of CPU threads that emulate the threads of a GPU: warps of any width, blocks, grids.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/basic/barrier_ids.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/emulation/barrier.hpp"

namespace mscclpp::emulation {

/// State shared by the lanes of an emulated warp.
struct WarpState {
  static constexpr int maxWords = 8;  ///< of a lane in an exchange
  WarpState(int width, std::chrono::seconds timeout)
      : barrier(timeout),
        exchange{std::vector<std::uint32_t>(static_cast<std::size_t>(width) * maxWords),
                 std::vector<std::uint32_t>(static_cast<std::size_t>(width) * maxWords)} {}
  Barrier barrier;
  std::vector<std::uint32_t> exchange[2];  // double-buffered, so that an exchange needs only one barrier
};

/// State shared by the threads of an emulated block.
struct BlockState {
  BlockState(int threads, int width, std::chrono::seconds timeout, std::size_t sharedBytes = 0)
      : shared((sharedBytes + sizeof(SharedLine) - 1) / sizeof(SharedLine)) {
    for (int w = 0; w < threads / width; ++w) warps.emplace_back(width, timeout);
    for (int id = 0; id < barrierCount; ++id) barriers.emplace_back(timeout);
  }
  struct alignas(128) SharedLine {
    std::byte bytes[128];
  };
  static constexpr int barrierCount = 16;  // as on a GPU

  Barrier& barrier(int id) {
    if (id < 0 || id >= barrierCount) {
      throw std::out_of_range("barrier " + std::to_string(id) +
                              " of a block: ids are 0 to 15; BarrierIds::first is 1 to " +
                              std::to_string(barrierCount - BarrierIds::count));
    }
    return barriers[static_cast<std::size_t>(id)];
  }

  std::deque<WarpState> warps;
  std::deque<Barrier> barriers;
  std::vector<SharedLine> shared;
};

/// Model of WarpGroup. Width: the number of lanes, any that divides the number of threads of the block.
template <int Width>
class Warp {
 public:
  static constexpr int width = Width;
  static constexpr bool lockstepStores = false;

  Warp(WarpState& state, int lane, unsigned& exchanges) : state_(&state), lane_(lane), exchanges_(&exchanges) {}
  int rank() const { return lane_; }
  int size() const { return Width; }
  void sync() const { state_->barrier.wait({0, Width}); }
  std::uint32_t shuffle(std::uint32_t value, int source) const { return publish(value)[source % Width]; }
  bool all(bool predicate) const {
    const std::uint32_t* const votes = publish(predicate);
    for (int lane = 0; lane < Width; ++lane) {
      if (votes[lane] == 0) return false;
    }
    return true;
  }
  bool any(bool predicate) const {
    const std::uint32_t* const votes = publish(predicate);
    for (int lane = 0; lane < Width; ++lane) {
      if (votes[lane] != 0) return true;
    }
    return false;
  }
  std::uint32_t ballot(bool predicate) const {
    static_assert(Width <= 32);
    const std::uint32_t* const votes = publish(predicate);
    std::uint32_t lanes = 0;
    for (int lane = 0; lane < Width; ++lane) lanes |= votes[lane] << lane;
    return lanes;
  }
  /// Emulation only: word i of lane l is at [l * N + i], valid until this lane's exchange after the next. Instructions
  /// by which lanes exchange many registers would need a shuffle for each.
  template <int N>
  const std::uint32_t* exchange(const std::uint32_t (&words)[N]) const {
    static_assert(N <= WarpState::maxWords);
    auto& exchange = state_->exchange[(*exchanges_)++ % 2];
    for (int i = 0; i < N; ++i) exchange[static_cast<std::size_t>(lane_ * N + i)] = words[i];
    state_->barrier.wait({0, Width});
    return exchange.data();
  }

 private:
  const std::uint32_t* publish(std::uint32_t value) const {
    const std::uint32_t words[1] = {value};
    return exchange(words);
  }

  WarpState* state_;
  int lane_;
  unsigned* exchanges_;
};
static_assert(WarpGroup<Warp<4>>);

/// Model of ThreadGroup: consecutive threads of a block, which sync through barrier `barrier`. Barrier 0 is that of the
/// whole block.
class Block {
 public:
  Block(BlockState& state, const ThreadSpan& threads, int barrier, int rank)
      : state_(&state), threads_(threads), barrier_(barrier), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return threads_.count; }
  void sync() const { state_->barrier(barrier_).wait(threads_); }
  bool syncAny(bool vote) const { return state_->barrier(barrier_).wait(threads_, vote); }

 private:
  BlockState* state_;
  ThreadSpan threads_;
  int barrier_;
  int rank_;
};
static_assert(VotingGroup<Block>);

/// What a thread of an emulated launch is.
struct ThreadPlace {
  BlockState* state;
  int blockIndex;
  int blockCount;
  int thread;  ///< in the block
  unsigned* exchanges;
};

/// Warps [firstWarp, firstWarp + warpCount) of each block, for one thread: the counterpart of gpu::WarpGrid, made by
/// Grid::warps(). Only threads for which isMember() holds use the other functions.
template <int Width>
class WarpGrid {
 public:
  WarpGrid(const ThreadPlace& place, int firstWarp, int warpCount, int blockBarrier, BarrierIds barriers)
      : place_(place),
        threads_{firstWarp * Width, warpCount * Width},
        blockBarrier_(blockBarrier),
        barriers_(barriers) {}
  bool isMember() const { return rank() >= 0 && rank() < threads_.count; }
  int blockIndex() const { return place_.blockIndex; }
  int blockCount() const { return place_.blockCount; }
  Block block() const { return {*place_.state, threads_, blockBarrier_, rank()}; }
  Warp<Width> warp() const {
    return {place_.state->warps[static_cast<std::size_t>(place_.thread / Width)], place_.thread % Width,
            *place_.exchanges};
  }
  int warpIndex() const { return (place_.thread - threads_.first) / Width; }
  int warpCount() const { return threads_.count / Width; }

  // The last warp is the control warp, the others are workers (concept WarpSpecializedGrid).
  bool isControlWarp() const { return warpIndex() == warpCount() - 1; }
  Block workers() const {
    return {*place_.state, {threads_.first, threads_.count - Width}, barriers_.workers(), rank()};
  }
  void namedBarrierArrive(int barrier) const { place_.state->barrier(barriers_.specialized(barrier)).arrive(threads_); }
  void namedBarrierWait(int barrier) const { place_.state->barrier(barriers_.specialized(barrier)).wait(threads_); }

 protected:
  const ThreadPlace& place() const { return place_; }

 private:
  int rank() const { return place_.thread - threads_.first; }

  ThreadPlace place_;
  ThreadSpan threads_;
  int blockBarrier_;
  BarrierIds barriers_;
};
static_assert(WarpSpecializedGrid<WarpGrid<4>>);

/// Model of Grid, for one thread: all blocks and warps of a launch.
template <int Width>
class Grid : public WarpGrid<Width> {
 public:
  Grid(const ThreadPlace& place, int threads) : WarpGrid<Width>(place, 0, threads / Width, 0, BarrierIds{}) {}
  /// The shared memory of the block.
  std::byte* sharedMemory() const { return reinterpret_cast<std::byte*>(this->place().state->shared.data()); }
  /// Warps [first, first + count) of each block, with barriers of their own. Throws std::out_of_range if the block does
  /// not have them.
  WarpGrid<Width> warps(int first, int count, BarrierIds barriers = {}) const {
    if (first < 0 || count < 1 || first + count > this->warpCount()) {
      throw std::out_of_range("warps " + std::to_string(first) + " to " + std::to_string(first + count - 1) +
                              " of blocks of " + std::to_string(this->warpCount()) + " warps");
    }
    return {this->place(), first, count, barriers.span(), barriers};
  }
};
static_assert(WarpSpecializedGrid<Grid<4>> && SharedMemoryGrid<Grid<4>>);

}  // namespace mscclpp::emulation
