// One process of the random kills.
#pragma once

#include <functional>
#include <memory>

#include "perf/place.hpp"

namespace mscclpp::faults {

/// Serves the controller at the other end of `socket` until it is gone: one generation after the other, in which all
/// objects of the library are made, used until a call throws, and destroyed.
void serve(int socket, bool onGpu, const std::function<std::unique_ptr<perf::Place>()>& makePlace);

}  // namespace mscclpp::faults
