// A reader with a planted mistake: the fuzzers show something only if they find such a one.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || data[0] != 'L' || data[1] != 'E' || data[2] != 'N') return 0;
  const std::vector<std::uint8_t> payload(data + 4, data + size);
  std::vector<std::uint8_t> copy(data[3]);  // as long as it says, not as it is
  if (!payload.empty()) std::memcpy(copy.data(), payload.data(), payload.size());
  return copy.empty() ? 0 : copy[0] * 0;
}
