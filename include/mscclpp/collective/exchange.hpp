// Exchange: a call with many messages, to and from many ranks and over several protocols, which all progress together.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/message_transfer.hpp"
#include "mscclpp/collective/pair_messages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// The scratch of one of the protocols of an Exchange.
template <class Transfer>
struct TransferScratch {
  typename Transfer::Scratch scratch;  ///< scratch.start: where it begins in the window
};

/// The arguments of an Exchange: plain data. Transfers: its protocols.
template <int Ranks, int maxMessages, class... Transfers>
struct ExchangeArgs : TransferScratch<Transfers>... {
  Team<Ranks> team;
  Window<Ranks> window;  ///< that of the scratches of all protocols
  BoundedWait wait;
  int pairCount;                        ///< ordered pairs in `pairs`, each once
  PairMessages pairs[maxMessages];      ///< the messages of a pair are in the order in which they are sent
  std::size_t counts[maxMessages];      ///< [m]: elements of message m
  std::uint8_t protocols[maxMessages];  ///< [m]: the protocol of message m, an index in Transfers
};

namespace detail {

/// The largest number of threads per block of any of the protocols; a control warp is of no use to packets, but works.
template <class... Transfers>
MSCCLPP_HOST_DEVICE constexpr int largestBlockOf() {
  int most = 0;
  ((most = Transfers::maxBlockThreads > most ? Transfers::maxBlockThreads : most), ...);
  return most;
}

}  // namespace detail

/// A call that sends and receives up to maxMessages messages. Transfers: the protocols, each a
/// MessageTransfer<T, config> with the same T and config.ranks; none twice. The scratches are those of
/// SendReceive<T, config>, whose calls and Exchanges may follow each other.
///
/// run() is called by every thread of every block of `grid`, on the ranks that take part. All messages progress
/// together, but for those of an ordered pair, which follow each other. Message n from a to b over a protocol, counted
/// over all calls, belongs to message n from a on b over that protocol, with the same count: it does not matter how the
/// ranks divide their messages into calls, nor in which order the pairs are in a call. Two calls with the same pair do
/// not overlap in time. A message without elements takes no part. A wait that fails leaves its record in args.wait's
/// control block; what was received is then meaningless.
///
/// The blocks are divided evenly among the pairs, all of which must be resident at once; there are at least as many
/// blocks as pairs.
///
/// sources(m) is the source of message m, if this rank sends it, and sinks(m) the sink, if it receives it; both are
/// called as by SendReceive. Inputs and outputs do not overlap; a message to oneself may have input == output if no
/// other message has that input.
template <int Ranks, int maxMessages, class... Transfers>
struct Exchange {
  static_assert(maxMessages > 0 && maxMessages <= 255, "messages are counted in 8 bits");
  using Args = ExchangeArgs<Ranks, maxMessages, Transfers...>;

  static constexpr int maxBlockThreads = detail::largestBlockOf<Transfers...>();

  /// Whether a launch of this shape can run with these arguments: there is a block for each pair, pairs and messages
  /// are within their arrays, and every message fits in the scratch of its protocol. launch() checks it; a user's
  /// kernel that calls run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    if (args.pairCount < 0 || args.pairCount > maxMessages) return false;
    if (shape.blocks < 1 || shape.blocks > maxBlocks || shape.blocks < args.pairCount) return false;
    for (int p = 0; p < args.pairCount; ++p) {
      const PairMessages& pair = args.pairs[p];
      if (pair.peer >= args.team.size() || pair.first + pair.count > maxMessages) return false;
      if ((pair.side == PairSide::Alone) != (pair.peer == args.team.rank())) return false;
      for (int m = pair.first; m < pair.first + pair.count; ++m) {
        if (!fits(args, m)) return false;
      }
    }
    return true;
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Sources, class Sinks>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Sources& sources, const Sinks& sinks) {
    return forEachPart(grid, args.pairCount, [&](const auto& blocks, int part) {
      const PairMessages& pair = args.pairs[part];
      const int end = pair.first + pair.count;
      bool succeeded = true;
      bool continues = true;
      MSCCLPP_NO_UNROLL
      for (int m = pair.first; m < end && continues; ++m) {
        int protocol = 0;
        const auto runIf = [&]<class Transfer>(const TransferScratch<Transfer>& own) {
          if (args.protocols[m] != protocol++) return;
          const auto transfer = [&]<PairSide side>(const auto& source, const auto& sink) {
            const auto& scratch = own.scratch;
            const bool isDone =
                Transfer::template run<side>(blocks, args, scratch, pair.peer, args.counts[m], source, sink);
            succeeded = isDone && succeeded;
            if (m + 1 < end) continues = Transfer::template awaitEnd<side>(blocks, args, scratch, pair.peer);
          };
          using Nothing = typename Transfer::Nothing;
          if (pair.side == PairSide::Sender) {
            transfer.template operator()<PairSide::Sender>(sources(m), Nothing());
          } else if (pair.side == PairSide::Receiver) {
            transfer.template operator()<PairSide::Receiver>(Nothing(), sinks(m));
          } else {
            transfer.template operator()<PairSide::Alone>(sources(m), sinks(m));
          }
        };
        (runIf(static_cast<const TransferScratch<Transfers>&>(args)), ...);
      }
      return succeeded && continues;
    });
  }

 private:
  static MSCCLPP_HOST_DEVICE bool fits(const Args& args, int message) {
    int protocol = 0;
    bool result = false;
    const auto add = [&]<class Transfer>(const TransferScratch<Transfer>& own) {
      if (args.protocols[message] == protocol++) result = Transfer::fits(own.scratch, args.counts[message]);
    };
    (add(static_cast<const TransferScratch<Transfers>&>(args)), ...);
    return result;
  }
};

/// Arrays of messages, as `sources` or `sinks` of an Exchange. Access: ArraySource<T>, ArraySink<T> or the like.
/// Element: const T or T.
template <class Access, class Element, int maxMessages>
struct MessageArrays {
  Element* data[maxMessages];  ///< [m]: the elements of message m

  MSCCLPP_INLINE Access operator()(int message) const { return Access(data[message]); }
};

}  // namespace mscclpp
