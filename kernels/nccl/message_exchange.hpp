// The sends and receives of a group, performed together.
#pragma once

#include <cstddef>
#include <span>

#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::nccl {

struct SentMessage {
  const void* data;
  std::size_t bytes;
  int destination;
};
struct ReceivedMessage {
  void* data;
  std::size_t bytes;
  int origin;
};

/// The k-th message from one rank to another is received by the k-th receive from it there; messages may be empty, and
/// may go to the rank itself. A rank calls it when it has messages, beside no other call.
void exchange(Collectives& collectives, int rank, int ranks, std::span<const SentMessage> sends,
              std::span<const ReceivedMessage> receives, CUstream_st* stream);

}  // namespace mscclpp::nccl
