// The sends and receives of a group, as many as there may be.
#pragma once

#include <span>

#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::kernels {

/// Performs messages as Collectives::exchange does; more than one call of it takes are divided in the same way on all
/// ranks, so that calls never wait for each other in a circle. An invalid message is refused before any is performed.
void exchange(Collectives& collectives, std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
              CUstream_st* stream);

}  // namespace mscclpp::kernels
