#include "kernels/nccl/call_counts.hpp"

#include <cstdlib>
#include <sstream>

#include "kernels/nccl/log.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

// Never destroyed: destructors of static objects may still make calls.
CallCounts& CallCounts::ofProcess() {
  static auto* const counts = [] {
    auto* made = new CallCounts;
    if (env()->ncclInfo) std::atexit([] { ofProcess().printAtExit(); });
    return made;
  }();
  return *counts;
}

void CallCounts::printAtExit() const noexcept {
  try {
    if (owner_.isCurrent()) print(summary());  // a forked child has made none of the calls
  } catch (...) {                              // out of memory
  }
}

std::string CallCounts::summary() const {
  std::ostringstream text;
  text << "calls of NCCL's API in this process:";
  bool isEmpty = true;
  for (const Route route : {Route::Native, Route::Forwarded}) {
    for (int i = 0; i < functions; ++i) {
      const Count& count = counts_[static_cast<std::size_t>(route)][static_cast<std::size_t>(i)];
      if (count.calls == 0) continue;
      isEmpty = false;
      text << "\n  " << nameOf(static_cast<Function>(i)) << (route == Route::Native ? " by mscclpp: " : " by NCCL: ")
           << count.calls << " calls, " << count.bytes << " bytes";
    }
  }
  if (isEmpty) text << " none";
  return text.str();
}

}  // namespace mscclpp::nccl
