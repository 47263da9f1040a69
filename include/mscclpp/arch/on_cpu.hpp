// Actions that only a CPU has, such as throwing an exception.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// On a CPU calls Action::run(arguments...), which is a function for the host only; on a GPU does nothing.
template <class Action, class... Arguments>
MSCCLPP_HOST_DEVICE void onCpu([[maybe_unused]] const Arguments&... arguments) {
#if !defined(__CUDA_ARCH__)
  Action::run(arguments...);
#endif
}

}  // namespace mscclpp::arch
