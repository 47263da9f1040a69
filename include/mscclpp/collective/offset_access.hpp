// Sources and sinks that start at another element of a source or sink.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A source whose element 0 is element `offset` of another source, which must outlive it. It accesses an array if that
/// one does.
template <class Source>
class OffsetSource {
 public:
  MSCCLPP_INLINE OffsetSource(const Source& source, std::size_t offset) : source_(source), offset_(offset) {}

  MSCCLPP_INLINE auto operator()(std::size_t first, int valid) const { return source_(offset_ + first, valid); }
  MSCCLPP_INLINE auto data() const requires ArrayAccess<Source> { return source_.data() + offset_; }

 private:
  const Source& source_;
  std::size_t offset_;
};

/// A sink whose element 0 is element `offset` of another sink, which must outlive it. It accesses an array if that one
/// does.
template <class Sink>
class OffsetSink {
 public:
  MSCCLPP_INLINE OffsetSink(const Sink& sink, std::size_t offset) : sink_(sink), offset_(offset) {}

  template <class T>
  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    sink_(offset_ + first, result, valid);
  }
  MSCCLPP_INLINE auto data() const requires ArrayAccess<Sink> { return sink_.data() + offset_; }

 private:
  const Sink& sink_;
  std::size_t offset_;
};

static_assert(SourceOf<OffsetSource<ArraySource<float>>, float> && ArrayAccess<OffsetSource<ArraySource<float>>>);
static_assert(SinkOf<OffsetSink<ArraySink<float>>, float> && ArrayAccess<OffsetSink<ArraySink<float>>>);

}  // namespace mscclpp
