// The benchmark of one rank: times and checks every size with every algorithm and with NCCL.
#pragma once

#include <memory>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "options.hpp"

namespace mscclpp::perf {

/// Returns the number of wrong elements over all ranks. Throws what the collectives throw.
std::size_t measureAllReduce(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Backend& backend,
                             bool onGpu);

}  // namespace mscclpp::perf
