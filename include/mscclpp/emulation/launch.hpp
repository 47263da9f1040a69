// Runs device code on CPU threads: one thread for each emulated thread of each block of each rank, all concurrently.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mscclpp/emulation/group.hpp"

namespace mscclpp::emulation {

/// The shape of an emulated launch. Each emulated thread is a thread of the operating system, so keep the product in
/// the tens.
struct Shape {
  int ranks = 1;
  int blocks = 1;
  int threads = 1;                   ///< per block; a multiple of the warp width
  std::chrono::seconds timeout{20};  ///< after this time a sync() that not all threads reach throws Deadlock
  std::size_t sharedBytes = 0;       ///< bytes of shared memory per block
};

namespace detail {

/// One emulated thread: thread `thread` of block `block`, whose state is `state`.
using ThreadEntry = void (*)(const void* body, const Shape& shape, BlockState& state, int rank, int block, int thread);

/// The part of launch() that does not depend on the body: it is compiled once, however many bodies there are.
inline void runThreads(const Shape& shape, int width, ThreadEntry entry, const void* body) {
  if (shape.ranks < 1 || shape.blocks < 1 || shape.threads < 1 || shape.threads % width != 0) {
    throw std::invalid_argument(
        "emulation::launch: ranks, blocks and threads must be positive, and threads a multiple of the warp width");
  }
  std::deque<BlockState> blocks;
  std::vector<std::thread> threads;
  std::exception_ptr first;
  std::mutex firstMutex;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int block = 0; block < shape.blocks; ++block) {
      BlockState& state = blocks.emplace_back(shape.threads, width, shape.timeout, shape.sharedBytes);
      for (int thread = 0; thread < shape.threads; ++thread) {
        threads.emplace_back([&, rank, block, thread] {
          try {
            entry(body, shape, state, rank, block, thread);
          } catch (...) {
            const std::lock_guard lock(firstMutex);
            if (!first) first = std::current_exception();
          }
        });
      }
    }
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace detail

/// Calls body(rank, grid) in every thread and returns when all have ended. Width: lanes per emulated warp. Rethrows the
/// first exception of a thread; throws std::invalid_argument for an invalid shape.
template <int Width = 1, class Body>
void launch(const Shape& shape, const Body& body) {
  const auto entry = [](const void* erased, const Shape& grid, BlockState& state, int rank, int block, int thread) {
    unsigned exchanges = 0;
    const ThreadPlace place{&state, block, grid.blocks, thread, &exchanges};
    (*static_cast<const Body*>(erased))(rank, Grid<Width>(place, grid.threads));
  };
  detail::runThreads(shape, Width, entry, &body);
}

}  // namespace mscclpp::emulation
