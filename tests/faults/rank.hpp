// One process of the random kills.
#pragma once

#include <functional>
#include <memory>

#include "perf/backend.hpp"

namespace mscclpp::faults {

/// Serves the controller at the other end of `socket` until it disconnects: in each generation all objects of the
/// library are created, used until a call throws, and destroyed.
void serve(int socket, bool onGpu, const std::function<std::unique_ptr<perf::Backend>()>& makeBackend);

}  // namespace mscclpp::faults
