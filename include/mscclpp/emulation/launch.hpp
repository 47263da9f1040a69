// Runs device code on CPU threads: one thread for each emulated thread of each block of each rank, all concurrently.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>

#include "mscclpp/emulation/group.hpp"
#include "mscclpp/emulation/thread_pool.hpp"

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
  for (int block = 0; block < shape.ranks * shape.blocks; ++block) {
    blocks.emplace_back(shape.threads, width, shape.timeout, shape.sharedBytes);
  }
  std::exception_ptr first;
  std::mutex firstMutex;
  const auto runThread = [&](int thread) {
    const int block = thread / shape.threads;
    try {
      entry(body, shape, blocks[static_cast<std::size_t>(block)], block / shape.blocks, block % shape.blocks,
            thread % shape.threads);
    } catch (...) {
      const std::lock_guard lock(firstMutex);
      if (!first) first = std::current_exception();
    }
  };
  const auto run = [](const void* context, int thread) { (*static_cast<decltype(&runThread)>(context))(thread); };
  ThreadPool::ofThisThread().run(shape.ranks * shape.blocks * shape.threads, {run, &runThread});
  if (first) std::rethrow_exception(first);
}

}  // namespace detail

/// Calls body(rank, grid) in every thread and returns when all have ended. The threads are kept for the next launch by
/// the calling thread. Width: lanes per emulated warp. Rethrows the first exception of a thread; throws
/// std::invalid_argument for an invalid shape, and std::system_error if a thread cannot be started.
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
