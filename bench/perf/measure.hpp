// The benchmark of one rank: checks and times every size with every algorithm and with NCCL.
#pragma once

#include <memory>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "options.hpp"
#include "test_data.hpp"
#include "timing_kernels.hpp"

namespace mscclpp::perf {

/// The device of a rank.
struct MeasuredDevice {
  DeviceType type;
  Backend& backend;
  TestData& data;
  TimingKernels* kernels;  ///< null on a CPU
};

/// Returns the number of wrong elements over all ranks. Throws what the collectives throw.
std::size_t measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, const MeasuredDevice& device);

}  // namespace mscclpp::perf
