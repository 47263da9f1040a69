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

/// Calls body(rank, grid) in every thread and returns when all have ended. Width: lanes per emulated warp. Rethrows the
/// first exception of a thread; throws std::invalid_argument for an invalid shape.
template <int Width = 1, class Body>
void launch(const Shape& shape, const Body& body) {
  if (shape.ranks < 1 || shape.blocks < 1 || shape.threads < 1 || shape.threads % Width != 0) {
    throw std::invalid_argument(
        "emulation::launch: ranks, blocks and threads must be positive, and threads a multiple of the warp width");
  }
  std::deque<BlockState> blocks;
  std::vector<std::thread> threads;
  std::exception_ptr first;
  std::mutex firstMutex;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int index = 0; index < shape.blocks; ++index) {
      BlockState& state = blocks.emplace_back(shape.threads, Width, shape.timeout, shape.sharedBytes);
      for (int thread = 0; thread < shape.threads; ++thread) {
        threads.emplace_back([&, rank, index, thread] {
          unsigned exchanges = 0;
          try {
            body(rank, Grid<Width>(state, index, shape.blocks, thread, shape.threads, exchanges));
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

}  // namespace mscclpp::emulation
