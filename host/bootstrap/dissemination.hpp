// The dissemination barrier: after round k a rank has heard from 2^k ranks, so log2(size) rounds suffice and no rank is
// a bottleneck.
#pragma once

namespace mscclpp::detail {

/// Called by each of `size` ranks with its own `position`. `sendTo(position)` and `receiveFrom(position)` transfer one
/// token; a receive returns when the matching send has been called.
template <class SendTo, class ReceiveFrom>
void disseminationBarrier(int position, int size, const SendTo& sendTo, const ReceiveFrom& receiveFrom) {
  for (int distance = 1; distance < size; distance *= 2) {
    sendTo((position + distance) % size);
    receiveFrom((position - distance + size) % size);
  }
}

}  // namespace mscclpp::detail
