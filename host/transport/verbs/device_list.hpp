// The verbs devices of this host, in the order of the transports IB0, IB1, ...
#pragma once

#include <string>
#include <vector>

#include "host/transport/verbs/sysfs.hpp"

namespace mscclpp::detail::ib {

/// Sorts `present`: the devices of the comma list `chosen`, or all if it is empty, by name with numbers by value
/// (mlx5_2 before mlx5_10). Throws Error(InvalidUsage) for a chosen device that is not present.
std::vector<std::string> orderDevices(std::vector<std::string> present, const std::string& chosen);

/// The devices behind IB0, IB1, ...; empty without libibverbs.
std::vector<std::string> deviceNames();

/// The index of the device that GPU `gpu`, at `busId`, should use. `devices` is not empty.
int nearestDevice(const Sysfs& sysfs, const std::vector<std::string>& devices, const std::string& busId, int gpu);

}  // namespace mscclpp::detail::ib
