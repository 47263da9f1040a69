// Rows through port channels, to ranks of which this one cannot map the window: those of other hosts.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_transport.hpp"
#include "mscclpp/sync/fifo.hpp"
#include "mscclpp/sync/trigger.hpp"

namespace mscclpp::moe {

/// How an exchange of rows reaches the ranks that this one has not mapped. Plain data, in the arguments of a call.
template <class Channel>
struct RowPorts {
  /// [ranks], in memory of this rank: to each such rank, with `staging` as the source and the other's window as the
  /// destination. The rest are not used.
  const Channel* channels;
  std::byte* staging;  ///< scratch.windowBytes() bytes of this rank, aligned as a window; of any value at first
};

/// StoreTransport, but what is for a rank that this one has not mapped (RowArgs) is written to memory of this rank, and
/// put to the window of the other by a port channel: by a proxy with copy engines or a network. For each row one thread
/// pushes two requests: the row, and the flag that publishes it. Own rows, and those for ranks that are mapped, are
/// stored as by a StoreTransport.
///
/// A put of 8 bytes must arrive as a whole, and after the puts before it (docs/memory_model.md says how it does).
template <PortTriggerLayout Trigger>
struct BasicPortTransport : StoreTransport {
  static constexpr bool usesPorts = true;
  using Channel = BasicPortChannelHandle<Trigger>;
  using Ports = RowPorts<Channel>;
  /// The arguments of a put.
  struct Put {
    std::uint64_t dstOffset, srcOffset, bytes;
  };

  /// One thread. Releases what its group has written before a sync.
  template <WaitPolicy Wait>
  static MSCCLPP_INLINE void put(const Channel& channel, const Put& put, Wait& wait) {
    channel.put(put.dstOffset, put.srcOffset, put.bytes, wait);
  }
  /// Puts a row, of which the lanes of a warp have written all packs, and then its flag, which the first lane has
  /// written. Called by all of them. The second request needs no release of its own: the proxy handles it after the
  /// first.
  template <class Warp, WaitPolicy Wait>
  static MSCCLPP_INLINE void putRow(const Warp& warp, const Channel& channel, const Put& row, const Put& flag,
                                    Wait& wait) {
    warp.sync();
    if (warp.rank() != 0) return;
    channel.put(row.dstOffset, row.srcOffset, row.bytes, wait);
    channel.template put<ReleaseScope::None>(flag.dstOffset, flag.srcOffset, flag.bytes, wait);
  }
};

using PortTransport = BasicPortTransport<ProxyTrigger>;
/// For scratch of 4 GiB and more.
using WidePortTransport = BasicPortTransport<WideTrigger>;

}  // namespace mscclpp::moe
