#include "kernels/jit/architecture.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::jit::detail {

namespace {

constexpr std::string_view ptxPrefix = "compute_";
constexpr std::string_view machinePrefix = "sm_";
// From this one on, features of one GPU alone are compiled for its name with an a.
constexpr int firstWithOwnFeatures = 90;

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

}  // namespace

bool isPtxArchitecture(const std::string& architecture) {
  return architecture.starts_with(ptxPrefix);
}

void checkArchitecture(const std::string& architecture, const std::vector<int>& supported) {
  std::string_view rest = architecture;
  bool valid = true;
  if (rest.starts_with(ptxPrefix)) {
    rest.remove_prefix(ptxPrefix.size());
  } else if (rest.starts_with(machinePrefix)) {
    rest.remove_prefix(machinePrefix.size());
  } else {
    valid = false;
  }
  int number = 0;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(rest.data() + rest.size() - end));
  valid = valid && status == std::errc() && number > 0 && (suffix.empty() || suffix == "a" || suffix == "f");
  if (!valid) {
    throw Error("architecture \"" + architecture +
                    "\" is not valid; allowed are sm_XX for machine code and compute_XX for PTX, as in sm_90a, or "
                    "nothing for the current device",
                ErrorCode::InvalidUsage);
  }
  if (std::find(supported.begin(), supported.end(), number) == supported.end()) {
    throw Error("this NVRTC does not compile for " + architecture + "; it knows " + join(supported) +
                    ". Choose one of these, or name another NVRTC in MSCCLPP_NVRTC_LIB_PATH",
                ErrorCode::InvalidUsage);
  }
}

std::string architectureFor(int capability, const std::vector<int>& supported) {
  const auto after = std::upper_bound(supported.begin(), supported.end(), capability);
  if (after == supported.begin()) {
    throw Error("this NVRTC does not compile for the current device, of compute capability " +
                    std::to_string(capability / 10) + "." + std::to_string(capability % 10) + "; it knows " +
                    join(supported) + ". Name an older NVRTC in MSCCLPP_NVRTC_LIB_PATH",
                ErrorCode::InvalidUsage);
  }
  const int newest = *(after - 1);
  if (newest < capability) return std::string(ptxPrefix) + std::to_string(newest);
  return std::string(machinePrefix) + std::to_string(capability) + (capability >= firstWithOwnFeatures ? "a" : "");
}

}  // namespace mscclpp::jit::detail
