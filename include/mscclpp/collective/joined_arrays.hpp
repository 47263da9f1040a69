// Arrays that are transferred as one message: they share its latency, and its blocks.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The arrays of messages, as plain data. Message m is its arrays one after another, each of which begins at a pack of
/// its own: before it the message has elements that are in no array, and are not read or written. Sender and receiver
/// join arrays of the same counts. Element: const T or T.
template <class Element, int maxArrays>
struct JoinedArrays {
  Element* data[maxArrays];        ///< [a]: the elements of array a
  std::size_t counts[maxArrays];   ///< [a]: how many they are, at least 1
  std::uint8_t firsts[maxArrays];  ///< [m]: the first array of message m
  std::uint8_t joined[maxArrays];  ///< [m]: how many arrays it has, at least 1

  /// The elements from the beginning of an array to that of the next one of its message.
  MSCCLPP_INLINE std::size_t stride(int array) const {
    return roundUp(counts[array], static_cast<std::size_t>(packSize<Element>));
  }
};

namespace detail {

/// Calls use(element, valid), where `element` is where a pack of a message lies: `valid` of its elements do.
template <class Element, int maxArrays, class Use>
MSCCLPP_INLINE auto atPackOf(const JoinedArrays<Element, maxArrays>& arrays, int message, std::size_t first, int valid,
                             const Use& use) {
  int array = arrays.firsts[message];
  const int last = array + arrays.joined[message] - 1;
  for (; array < last && first >= arrays.stride(array); ++array) first -= arrays.stride(array);
  const std::size_t left = arrays.counts[array] - first;
  return use(arrays.data[array] + first, left < static_cast<std::size_t>(valid) ? static_cast<int>(left) : valid);
}

}  // namespace detail

/// Message `message` of joined arrays, as a source.
template <class T, int maxArrays>
class JoinedSource {
 public:
  MSCCLPP_INLINE JoinedSource(const JoinedArrays<const T, maxArrays>& arrays, int message)
      : arrays_(arrays), message_(message) {}

  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int valid) const {
    return detail::atPackOf(arrays_, message_, first, valid,
                            [](const T* from, int present) { return ArraySource<T>(from)(0, present); });
  }

 private:
  const JoinedArrays<const T, maxArrays>& arrays_;
  int message_;
};
static_assert(SourceOf<JoinedSource<float, 1>, float>);

/// The same as a sink.
template <class T, int maxArrays>
class JoinedSink {
 public:
  MSCCLPP_INLINE JoinedSink(const JoinedArrays<T, maxArrays>& arrays, int message)
      : arrays_(arrays), message_(message) {}

  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    detail::atPackOf(arrays_, message_, first, valid, [&](T* to, int present) {
      const ArraySink<T> sink(to);
      sink(0, result, present);
    });
  }

 private:
  const JoinedArrays<T, maxArrays>& arrays_;
  int message_;
};
static_assert(SinkOf<JoinedSink<float, 1>, float>);

/// Joined arrays as the `sources` and `sinks` of an Exchange.
template <class T, int maxArrays>
struct JoinedSources : JoinedArrays<const T, maxArrays> {
  MSCCLPP_INLINE JoinedSource<T, maxArrays> operator()(int message) const { return {*this, message}; }
};
template <class T, int maxArrays>
struct JoinedSinks : JoinedArrays<T, maxArrays> {
  MSCCLPP_INLINE JoinedSink<T, maxArrays> operator()(int message) const { return {*this, message}; }
};

}  // namespace mscclpp
