// Properties of the verbs transports, whether or not this build has them.
#pragma once

#include "host/transport/transport_backend.hpp"

namespace mscclpp::detail {

inline constexpr TransportProperties verbsProperties{.servesCpu = true, .servesGpu = true, .mapsMemory = false};

}  // namespace mscclpp::detail
