// The verbs devices (InfiniBand, RoCE) of this host, and the transport of each.
#pragma once

#include <string>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp {

/// Number of verbs devices: those that MSCCLPP_HCA_DEVICES lists, else all of this host. 0 without libibverbs. Throws
/// Error(InvalidUsage) if the variable names a device that does not exist.
int getIBDeviceCount();

/// The device of IB0, IB1, ...: the first, second, ... of MSCCLPP_HCA_DEVICES, else of this host in the order of their
/// names. Throws Error(InvalidUsage) if there is none; "" in a build without verbs.
std::string getIBDeviceName(Transport ibTransport);

/// The reverse. Throws Error(InvalidUsage) for a device that is none of IB0 to IB7; Transport::Unknown in a build
/// without verbs.
Transport getIBTransportByDeviceName(const std::string& ibDeviceName);

/// The device that is nearest to a GPU by PCIe: below the same root port, then at the same CPU. GPUs with several at
/// the same distance use them round-robin. For the CPU it is IB0. Throws Error(InvalidUsage) if there is none.
Transport nearestIBTransport(const Device& device);

}  // namespace mscclpp
