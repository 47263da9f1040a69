// How often each function was called in this process, with how many bytes, and which library performed it: the summary
// that MSCCLPP_NCCL_INFO=1 prints at the end.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "host/base/process_identity.hpp"
#include "kernels/nccl/api_call.hpp"

namespace mscclpp::nccl {

/// Who performs a call: this library, or the NCCL that MSCCLPP_NCCL_LIB_PATH names.
enum class Route { Native, Forwarded };

class CallCounts {
 public:
  /// The one of this process. It prints the summary when the process ends, if that is asked for.
  static CallCounts& ofProcess();

  void add(Function function, Route route, std::size_t bytes) noexcept {
    Count& count = counts_[static_cast<std::size_t>(route)][static_cast<std::size_t>(function)];
    count.calls.fetch_add(1, std::memory_order_relaxed);
    count.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// A line for each function that was called.
  std::string summary() const;

 private:
  struct Count {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> bytes = 0;
  };

  void printAtExit() const noexcept;

  const detail::OwnerProcess owner_;
  std::array<std::array<Count, functions>, 2> counts_;
};

}  // namespace mscclpp::nccl
