// What one rank does: every size with every algorithm and peer, timed and checked.
#pragma once

#include <memory>

#include "mscclpp/host/bootstrap.hpp"
#include "options.hpp"

namespace mscclpp::perf {

/// Returns how many elements were wrong, over all ranks. Throws what the collectives throw.
std::size_t measureAllReduce(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Place& place, bool onGpu);

}  // namespace mscclpp::perf
