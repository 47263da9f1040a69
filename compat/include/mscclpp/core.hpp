// MSCCL++'s core: bootstrap, transports, memory, connections, semaphores, communicator.
#pragma once

#include <string>

#include "mscclpp/device.hpp"
#include "mscclpp/errors.hpp"
#include "mscclpp/gpu_data_types.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"
#include "mscclpp/version.hpp"

namespace mscclpp {

/// The version of the interface (version.hpp): "MAJOR.MINOR.PATCH".
inline std::string version() {
  return std::to_string(MSCCLPP_MAJOR) + "." + std::to_string(MSCCLPP_MINOR) + "." + std::to_string(MSCCLPP_PATCH);
}

}  // namespace mscclpp
