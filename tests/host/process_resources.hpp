// What a process holds: to show that nothing is left behind.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace mscclpp::test {

inline std::size_t entriesOf(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

inline std::size_t openDescriptors() {
  return entriesOf("/proc/self/fd");
}

inline std::size_t liveThreads() {
  // A sanitizer starts a thread of its own with the first of the program; let it be counted from the beginning.
  std::thread([] {}).join();
  std::size_t count = entriesOf("/proc/self/task");
  // The joined one may still be listed for a moment: the smallest count of a while is the true one.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) count = std::min(count, entriesOf("/proc/self/task"));
  return count;
}

/// Whether there are `count` threads again. The kernel lists a thread for a moment after it was joined.
inline bool threadsReturnTo(std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (entriesOf("/proc/self/task") != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace mscclpp::test
