// Several calls of a reduction that are performed as one: they share its latency, and its blocks.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The sources, or the sinks, of calls of an AllReduce or ReduceScatter that one call performs, as plain data: an
/// Access for each of up to maxCalls calls, of which all have the same type and operator. The message of the one call
/// consists of theirs, one after another, each from a pack of its own on. So it depends on the counts alone, which all
/// ranks know, and not on where a rank's arrays lie. Between two messages, and behind the last one, are elements that
/// are in no call: they are reduced, and neither read nor written. Calls may be in place, but none uses what another
/// one writes.
template <class T, class Access, int maxCalls>
struct JoinedCalls {
  static_assert(maxCalls > 0 && (maxCalls & (maxCalls - 1)) == 0, "calls are found by halving: a power of two");

  Access accesses[maxCalls];           ///< [c]: of call c
  std::uint32_t counts[maxCalls];      ///< [c]: its args.count, in elements
  std::uint32_t firstPacks[maxCalls];  ///< [c]: its first pack in the message; of those that there are not: packs
  std::uint32_t packs;                 ///< of the message

  /// Sets all but the accesses, for `calls` calls; a count may be 0. The messages have less than 2^32 elements
  /// together, and so have the messages for all ranks that a reduce-scatter reads.
  MSCCLPP_HOST_DEVICE void setCounts(const std::size_t* countOfCalls, int calls) {
    packs = 0;
    for (int c = 0; c < maxCalls; ++c) {
      counts[c] = c < calls ? static_cast<std::uint32_t>(countOfCalls[c]) : 0;
      firstPacks[c] = packs;
      packs += static_cast<std::uint32_t>(ceilDivide(counts[c], packSize<T>));
    }
  }
  /// args.count of the one call.
  MSCCLPP_HOST_DEVICE std::size_t count() const { return std::size_t{packs} * packSize<T>; }

  /// Calls use(access, first, valid) for the call that has a pack of the message, or of one of several such messages,
  /// one after another, as a reduce-scatter reads them for the ranks: `first` is the index in the access.
  template <class Use>
  MSCCLPP_INLINE auto atPack(std::size_t firstOfMessage, const Use& use) const {
    auto pack = static_cast<std::uint32_t>(firstOfMessage / packSize<T>);
    std::size_t part = 0;
    for (; pack >= packs; pack -= packs) ++part;
    int call = 0;
    MSCCLPP_UNROLL
    for (int half = maxCalls / 2; half > 0; half /= 2) {
      if (firstPacks[call + half] <= pack) call += half;
    }
    const std::uint32_t first = (pack - firstPacks[call]) * packSize<T>;
    const std::uint32_t left = counts[call] - first;
    return use(accesses[call], part * counts[call] + first, left < packSize<T> ? static_cast<int>(left) : packSize<T>);
  }
};

/// Joined sources, each of which is one of its call, as a source. T: the type of the elements.
template <class T, class Source, int maxCalls>
struct JoinedCallSource : JoinedCalls<T, Source, maxCalls> {
  MSCCLPP_INLINE Pack<T> operator()(std::size_t firstOfMessage, int /*valid*/) const {
    return this->atPack(firstOfMessage,
                        [](const Source& source, std::size_t first, int valid) { return source(first, valid); });
  }
};
static_assert(SourceOf<JoinedCallSource<float, ArraySource<float>, 1>, float>);

/// The same as a sink.
template <class T, class Sink, int maxCalls>
struct JoinedCallSink : JoinedCalls<T, Sink, maxCalls> {
  MSCCLPP_INLINE void operator()(std::size_t firstOfMessage, const Pack<T>& result, int /*valid*/) const {
    this->atPack(firstOfMessage, [&](const Sink& sink, std::size_t first, int valid) { sink(first, result, valid); });
  }
};
static_assert(SinkOf<JoinedCallSink<float, ArraySink<float>, 1>, float>);

}  // namespace mscclpp
