// What a process holds: to show that nothing is left behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace mscclpp::test {

inline std::size_t entriesOf(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

inline std::size_t openDescriptors() {
  return entriesOf("/proc/self/fd");
}
inline std::size_t liveThreads() {
  return entriesOf("/proc/self/task");
}

}  // namespace mscclpp::test
