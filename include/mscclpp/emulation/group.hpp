// Groups of CPU threads that emulate the threads of a GPU: warps of any width, blocks, grids.
#pragma once

#include <deque>
#include <stdexcept>
#include <vector>

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/emulation/barrier.hpp"

namespace mscclpp::emulation {

/// State shared by the lanes of an emulated warp.
struct WarpState {
  WarpState(int width, std::chrono::seconds timeout)
      : barrier(width, timeout), exchange{std::vector<std::uint32_t>(width), std::vector<std::uint32_t>(width)} {}
  Barrier barrier;
  std::vector<std::uint32_t> exchange[2];  // double-buffered, so that an exchange needs only one barrier
};

/// State shared by the threads of an emulated block.
struct BlockState {
  BlockState(int threads, int width, std::chrono::seconds timeout, std::size_t sharedBytes = 0)
      : barrier(threads, timeout), shared((sharedBytes + sizeof(SharedLine) - 1) / sizeof(SharedLine)) {
    for (int w = 0; w < threads / width; ++w) warps.emplace_back(width, timeout);
    for (int m = 0; m < 4; ++m) namedBarriers.emplace_back(threads, timeout);
  }
  struct alignas(128) SharedLine {
    std::byte bytes[128];
  };
  Barrier barrier;
  std::deque<WarpState> warps;
  std::deque<Barrier> namedBarriers;
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
  void sync() const { state_->barrier.wait(); }
  std::uint32_t shuffle(std::uint32_t value, int source) const {
    return publish(value)[static_cast<std::size_t>(source % Width)];
  }
  bool all(bool predicate) const {
    for (const auto vote : publish(predicate)) {
      if (vote == 0) return false;
    }
    return true;
  }
  bool any(bool predicate) const {
    for (const auto vote : publish(predicate)) {
      if (vote != 0) return true;
    }
    return false;
  }

 private:
  /// Returns the values of all lanes, valid until this lane's exchange after the next.
  const std::vector<std::uint32_t>& publish(std::uint32_t value) const {
    auto& exchange = state_->exchange[(*exchanges_)++ % 2];
    exchange[static_cast<std::size_t>(lane_)] = value;
    state_->barrier.wait();
    return exchange;
  }

  WarpState* state_;
  int lane_;
  unsigned* exchanges_;
};
static_assert(WarpGroup<Warp<4>>);

/// Model of ThreadGroup: all threads of an emulated block.
class Block {
 public:
  Block(BlockState& state, int rank, int size) : state_(&state), rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void sync() const { state_->barrier.wait(); }

 private:
  BlockState* state_;
  int rank_;
  int size_;
};
static_assert(ThreadGroup<Block>);

/// The workers of a warp-specialised block: all warps but the last.
class Workers {
 public:
  Workers(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void sync() const { throw std::logic_error("emulated workers cannot sync without their control warp"); }

 private:
  int rank_;
  int size_;
};

/// Model of Grid, for one thread.
template <int Width>
class Grid {
 public:
  Grid(BlockState& state, int blockIndex, int blockCount, int thread, int threads, unsigned& exchanges)
      : state_(&state),
        blockIndex_(blockIndex),
        blockCount_(blockCount),
        thread_(thread),
        threads_(threads),
        exchanges_(&exchanges) {}
  int blockIndex() const { return blockIndex_; }
  int blockCount() const { return blockCount_; }
  Block block() const { return {*state_, thread_, threads_}; }
  Warp<Width> warp() const {
    return {state_->warps[static_cast<std::size_t>(thread_ / Width)], thread_ % Width, *exchanges_};
  }
  int warpIndex() const { return thread_ / Width; }
  int warpCount() const { return threads_ / Width; }
  std::byte* sharedMemory() const { return reinterpret_cast<std::byte*>(state_->shared.data()); }

  bool isControlWarp() const { return warpIndex() == warpCount() - 1; }
  Workers workers() const { return {thread_, threads_ - Width}; }
  void namedBarrierArrive(int barrier) const { state_->namedBarriers[static_cast<std::size_t>(barrier)].arrive(); }
  void namedBarrierWait(int barrier) const { state_->namedBarriers[static_cast<std::size_t>(barrier)].wait(); }

 private:
  BlockState* state_;
  int blockIndex_;
  int blockCount_;
  int thread_;
  int threads_;
  unsigned* exchanges_;
};
static_assert(WarpSpecializedGrid<Grid<4>> && SharedMemoryGrid<Grid<4>>);

}  // namespace mscclpp::emulation
