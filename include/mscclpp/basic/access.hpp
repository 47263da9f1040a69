// Sources and sinks: where a collective's packs come from and what happens to each when its value is final.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// A source is a callable Pack<T>(std::size_t first, int valid): the elements [first, first + valid) of this rank's contribution, valid <= packSize<T>,
// the rest of the pack anything. A sink is a callable void(std::size_t first, Pack<T> result, int valid). Each is called exactly once for each pack
// of the message, by whichever thread handles it; `first` is a multiple of packSize<T>.

/// A source that reads an array; any alignment.
template <class T>
class LoadFrom {
 public:
  MSCCLPP_INLINE explicit LoadFrom(const T* data)
      : data_(data), wide_(!arch::wideNeedsAlignment || reinterpret_cast<std::uintptr_t>(data) % 16 == 0) {}

  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int valid) const {
    if (wide_ && valid == packSize<T>) return fromWord<T>(arch::loadWide(data_ + first));
    Pack<T> pack = fromWord<T>(Word16{0, 0});
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) pack[i] = data_[first + i];
    }
    return pack;
  }

 private:
  const T* data_;
  bool wide_;
};

/// A sink that writes an array; any alignment.
template <class T>
class StoreTo {
 public:
  MSCCLPP_INLINE explicit StoreTo(T* data)
      : data_(data), wide_(!arch::wideNeedsAlignment || reinterpret_cast<std::uintptr_t>(data) % 16 == 0) {}

  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    if (wide_ && valid == packSize<T>) {
      arch::storeWide(data_ + first, toWord<T>(result));
      return;
    }
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) data_[first + i] = result[i];
    }
  }

 private:
  T* data_;
  bool wide_;
};

}  // namespace mscclpp
