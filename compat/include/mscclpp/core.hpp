// MSCCL++'s core: bootstrap, transports, memory, connections, semaphores, communicator.
#pragma once

#include <string>

#include "mscclpp/device.hpp"
#include "mscclpp/errors.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/device_handle.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/transport.hpp"
#include "mscclpp/version.hpp"

namespace mscclpp {

/// Of the interface (version.hpp): "MAJOR.MINOR.PATCH".
inline std::string version() {
  return std::to_string(MSCCLPP_MAJOR) + "." + std::to_string(MSCCLPP_MINOR) + "." + std::to_string(MSCCLPP_PATCH);
}

}  // namespace mscclpp
