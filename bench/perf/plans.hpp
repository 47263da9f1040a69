// Execution plans as implementations to measure.
#pragma once

#include <memory>
#include <vector>

#include "implementations.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::perf {

/// An implementation for each of the files of options.plans; on GPUs two, specialised and interpreted. `like` gives the
/// buffers. Their goals are those of plans of the same algorithm as the first implementation. Throws
/// Error(InvalidUsage) for a file that is no plan, or none of this collective and number of ranks.
std::vector<Implementation> planImplementations(const Options& options,
                                                const std::shared_ptr<Communicator>& communicator, DeviceType device,
                                                const Implementation& like);

}  // namespace mscclpp::perf
