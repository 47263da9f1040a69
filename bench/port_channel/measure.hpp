// What the two ranks of the port channel benchmark do.
#pragma once

#include <memory>

#include "mscclpp/host/bootstrap.hpp"
#include "options.hpp"
#include "place.hpp"

namespace mscclpp::bench {

/// Called by both ranks; rank 0 prints. Throws if data arrives wrong, and what the channel throws.
void measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Place& place);

}  // namespace mscclpp::bench
