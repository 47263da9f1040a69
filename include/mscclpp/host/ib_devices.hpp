// The verbs devices (InfiniBand, RoCE) of this host, and which of them a transport means.
#pragma once

#include <string>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp {

/// How many verbs devices there are: those that MSCCLPP_HCA_DEVICES lists, else all of this host. 0 without libibverbs.
/// Throws Error(InvalidUsage) if the variable names a device that does not exist.
int getIBDeviceCount();

/// The device behind IB0, IB1, ...: the first, second, ... of MSCCLPP_HCA_DEVICES, else of this host in the order of
/// their names. Throws Error(InvalidUsage) if there is none.
std::string getIBDeviceName(Transport ibTransport);

/// The reverse. Throws Error(InvalidUsage) for a device that is none of IB0 to IB7.
Transport getIBTransportByDeviceName(const std::string& ibDeviceName);

/// The device that is nearest to a GPU by PCIe: below the same port of the CPU, then at the same CPU. GPUs that have
/// several at the same distance share them in turn. For the CPU it is IB0. Throws Error(InvalidUsage) if there is none.
Transport nearestIBTransport(const Device& device);

}  // namespace mscclpp
