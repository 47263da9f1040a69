// Sources and sinks: callables that provide the packs of a collective's input and consume those of its result.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// Sources and sinks are called exactly once for each pack, by the thread that handles it. `first` is the index of the
// pack's first element, a multiple of packSize<T> unless the collective says otherwise; valid <= packSize<T>.

/// A source: a const callable Pack<T>(std::size_t first, int valid) that returns the elements [first, first + valid) of
/// this rank's contribution. The rest of the pack is ignored. Models: below.
template <class S, class T>
concept SourceOf = requires(const S& source, std::size_t first, int valid) {
  { source(first, valid) } -> detail::SameAs<Pack<T>>;
};

/// A sink: a const callable void(std::size_t first, const Pack<T>& result, int valid) that consumes the elements
/// [first, first + valid) of the result. Models: below.
template <class S, class T>
concept SinkOf = requires(const S& sink, std::size_t first, const Pack<T>& result, int valid) {
  sink(first, result, valid);
};

/// A source or sink that only accesses an array: data() is the address of element 0. Contiguous packs may be copied
/// without calling it.
template <class Access>
concept ArrayAccess = requires(const Access& access) {
  access.data();
};

namespace detail {

/// Whether an array can be accessed in words of 16 bytes. The host can ask it for the GPU, since both use the same
/// address.
inline MSCCLPP_HOST_DEVICE bool isPackAligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Word128) == 0;
}

}  // namespace detail

/// A source that reads an array, aligned to its elements.
template <class T>
class ArraySource {
 public:
  MSCCLPP_HOST_DEVICE explicit ArraySource(const T* data) : data_(data) {}

  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int valid) const {
    const T* const from = data_ + first;
    if (valid == packSize<T> && (!arch::wideNeedsAlignment || detail::isPackAligned(from))) {
      return fromWord<T>(arch::loadWide(from));
    }
    Pack<T> pack = fromWord<T>(Word128{0, 0});
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) pack[i] = from[i];
    }
    return pack;
  }
  MSCCLPP_INLINE const T* data() const { return data_; }

 private:
  const T* data_;
};

/// A sink that writes an array, aligned to its elements.
template <class T>
class ArraySink {
 public:
  MSCCLPP_HOST_DEVICE explicit ArraySink(T* data) : data_(data) {}

  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    T* const to = data_ + first;
    if (valid == packSize<T> && (!arch::wideNeedsAlignment || detail::isPackAligned(to))) {
      arch::storeWide(to, toWord<T>(result));
      return;
    }
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) to[i] = result[i];
    }
  }
  MSCCLPP_INLINE T* data() const { return data_; }

 private:
  T* data_;
};

/// A source that reads an array of whole packs at a 16-byte aligned address. It has half the instructions of
/// ArraySource, which matters in a kernel of a few microseconds.
template <class T>
class AlignedArraySource {
 public:
  MSCCLPP_HOST_DEVICE explicit AlignedArraySource(const T* data) : data_(data) {}
  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int /*valid*/) const {
    return fromWord<T>(arch::loadWide(data_ + first));
  }
  MSCCLPP_INLINE const T* data() const { return data_; }

 private:
  const T* data_;
};

/// A sink that writes an array of whole packs at a 16-byte aligned address.
template <class T>
class AlignedArraySink {
 public:
  MSCCLPP_HOST_DEVICE explicit AlignedArraySink(T* data) : data_(data) {}
  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int /*valid*/) const {
    arch::storeWide(data_ + first, toWord<T>(result));
  }
  MSCCLPP_INLINE T* data() const { return data_; }

 private:
  T* data_;
};

static_assert(SourceOf<ArraySource<float>, float> && SourceOf<AlignedArraySource<float>, float>);
static_assert(SinkOf<ArraySink<float>, float> && SinkOf<AlignedArraySink<float>, float>);

/// Whether AlignedArraySource and AlignedArraySink can be used for `count` elements at data.
template <class T>
MSCCLPP_HOST_DEVICE bool isAlignedArray(const T* data, std::size_t count) {
  return detail::isPackAligned(data) && count % packSize<T> == 0;
}

}  // namespace mscclpp
