// GPU memory of the same host, mapped by its peers and written by copy engines.
#pragma once

#include <memory>

#include "host/transport/connection_base.hpp"
#include "host/transport/transport_backend.hpp"

namespace mscclpp::detail {

inline constexpr TransportProperties cudaIpcProperties{.servesCpu = false, .servesGpu = true, .mapsMemory = true};

std::shared_ptr<ConnectionBase> makeCudaIpcConnection(std::shared_ptr<Context> context, const Endpoint& local,
                                                      const Endpoint& remote);

}  // namespace mscclpp::detail
