// Resources of this process: to check for leaks.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <vector>

namespace mscclpp::test {

inline std::size_t entriesOf(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

inline std::size_t openDescriptors() {
  return entriesOf("/proc/self/fd");
}

inline std::size_t liveThreads() {
  // A sanitizer starts a thread with the program's first thread; count it from the beginning.
  std::thread([] {}).join();
  std::size_t count = entriesOf("/proc/self/task");
  // A joined thread may still be listed briefly: use the smallest count over a period.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) count = std::min(count, entriesOf("/proc/self/task"));
  return count;
}

/// Whether the thread count returns to `count`. The kernel lists a thread briefly after it was joined.
inline bool threadCountReturnsTo(std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  while (entriesOf("/proc/self/task") != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Limits this process to `free` free descriptors for the lifetime of the object.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(std::size_t free) {
    if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) throw std::runtime_error("getrlimit");
    rlimit small = before_;
    small.rlim_cur = 256;
    if (::setrlimit(RLIMIT_NOFILE, &small) != 0) throw std::runtime_error("setrlimit");
    for (int fd; (fd = ::dup(STDERR_FILENO)) >= 0;) fillers_.push_back(fd);
    for (; free > 0 && !fillers_.empty(); --free) closeLast();
  }
  ~DescriptorLimit() {
    while (!fillers_.empty()) closeLast();
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  void closeLast() {
    ::close(fillers_.back());
    fillers_.pop_back();
  }
  rlimit before_{};
  std::vector<int> fillers_;
};

}  // namespace mscclpp::test
