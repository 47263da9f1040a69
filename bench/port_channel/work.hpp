// What a rank's kernel does while a port channel is timed: one thread, since one thread makes the calls of a channel.
#pragma once

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::bench {

/// PingPong: the ranks answer each other. Stream: rank 0 puts, as fast as it goes, and flushes at the end.
enum class Mode { PingPong, Stream };

/// How a message is sent: as one request, as two, or only the signal.
enum class Form { PutWithSignal, PutThenSignal, SignalOnly };

template <class Channel, Publish publish>
struct Work {
  Channel channel;
  Mode mode;
  Form form;
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
      } else if (form == Form::PutWithSignal) {
        own.template putWithSignal<publish>(0, bytes);
      } else {
        if (form == Form::PutThenSignal) own.template put<publish>(0, bytes);
        own.template signal<Publish::Nothing>();
      }
    }
    if (mode == Mode::Stream && rank == 0) own.flush();
    *elapsed = arch::nanoseconds() - start;
  }
};

}  // namespace mscclpp::bench
