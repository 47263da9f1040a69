// The measurements of the port channel benchmark.
#pragma once

#include <memory>

#include "backend.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "options.hpp"

namespace mscclpp::bench {

/// Called by both ranks; rank 0 prints. Throws if received data is wrong, and what the channel throws.
void measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Backend& backend);

}  // namespace mscclpp::bench
