// A reader with a planted bug: shows that the fuzzers detect such a bug.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || data[0] != 'L' || data[1] != 'E' || data[2] != 'N') return 0;
  const std::vector<std::uint8_t> payload(data + 4, data + size);
  std::vector<std::uint8_t> copy(data[3]);  // the announced size, not the actual one
  if (!payload.empty()) std::memcpy(copy.data(), payload.data(), payload.size());
  return copy.empty() ? 0 : copy[0] * 0;
}
