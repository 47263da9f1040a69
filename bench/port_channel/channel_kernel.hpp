// The kernel of the port channel benchmark: one thread, since a channel is used by one thread.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::bench {

/// PingPong: the ranks send alternately. Stream: rank 0 puts without waiting, and flushes at the end.
enum class Mode { PingPong, Stream };

/// A message is one request, two requests, or only a signal.
enum class Operation { PutWithSignal, PutThenSignal, SignalOnly };

template <class Channel, ReleaseScope releaseScope>
struct ChannelKernel {
  Channel channel;
  Mode mode;
  Operation operation;
  int rank;
  int warmup;
  int messages;
  std::uint64_t bytes;
  std::uint64_t* elapsed;  ///< nanoseconds for `messages` messages

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.blockIndex() != 0 || grid.block().rank() != 0) return;
    Channel own = channel;
    std::uint64_t start = 0;
    for (int i = -warmup; i < messages; ++i) {
      if (i == 0) {
        if (mode == Mode::Stream && rank == 0) own.flush();
        start = arch::nanoseconds();
      }
      const bool sends = mode == Mode::Stream ? rank == 0 : (i & 1) == rank;
      if (!sends) {
        own.wait();
      } else if (operation == Operation::PutWithSignal) {
        own.template putWithSignal<releaseScope>(0, bytes);
      } else {
        if (operation == Operation::PutThenSignal) own.template put<releaseScope>(0, bytes);
        own.template signal<ReleaseScope::None>();
      }
    }
    if (mode == Mode::Stream && rank == 0) own.flush();
    *elapsed = arch::nanoseconds() - start;
  }
};

}  // namespace mscclpp::bench
