// Sources and sinks: where a collective's packs come from and what happens to each when its value is final.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// A source is a callable Pack<T>(std::size_t first, int valid): the elements [first, first + valid) of this rank's contribution, valid <= packSize<T>,
// the rest of the pack anything. A sink is a callable void(std::size_t first, Pack<T> result, int valid). Each is called exactly once for each pack
// of the message, by whichever thread handles it; `first` is a multiple of packSize<T>.
// One that does nothing but read or write an array says so by data(), the address of element 0: whole runs of packs may then be copied instead.

/// A source or sink that is an array.
template <class Access>
concept ArrayAccess = requires(const Access& access) {
  access.data();
};

namespace detail {

/// Whether whole packs of the array can move as words. An address is the same on both sides, so the host may find out for the GPU.
inline MSCCLPP_HOST_DEVICE bool isPackAligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Word16) == 0;
}

}  // namespace detail

/// A source that reads an array; any alignment.
template <class T>
class LoadFrom {
 public:
  MSCCLPP_HOST_DEVICE explicit LoadFrom(const T* data) : data_(data), aligned_(detail::isPackAligned(data)) {}

  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int valid) const {
    if ((aligned_ || !arch::wideNeedsAlignment) && valid == packSize<T>) {
      return fromWord<T>(arch::loadWide(data_ + first));
    }
    Pack<T> pack = fromWord<T>(Word16{0, 0});
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) pack[i] = data_[first + i];
    }
    return pack;
  }
  MSCCLPP_INLINE const T* data() const { return data_; }

 private:
  const T* data_;
  bool aligned_;
};

/// A sink that writes an array; any alignment.
template <class T>
class StoreTo {
 public:
  MSCCLPP_HOST_DEVICE explicit StoreTo(T* data) : data_(data), aligned_(detail::isPackAligned(data)) {}

  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    if ((aligned_ || !arch::wideNeedsAlignment) && valid == packSize<T>) {
      arch::storeWide(data_ + first, toWord<T>(result));
      return;
    }
    MSCCLPP_UNROLL
    for (int i = 0; i < packSize<T>; ++i) {
      if (i < valid) data_[first + i] = result[i];
    }
  }
  MSCCLPP_INLINE T* data() const { return data_; }

 private:
  T* data_;
  bool aligned_;
};

/// A source that reads an array of whole packs at a 16-byte aligned address. Half the instructions of LoadFrom, which a kernel of a few microseconds notices.
template <class T>
class LoadPacks {
 public:
  MSCCLPP_HOST_DEVICE explicit LoadPacks(const T* data) : data_(data) {}
  MSCCLPP_INLINE Pack<T> operator()(std::size_t first, int /*valid*/) const {
    return fromWord<T>(arch::loadWide(data_ + first));
  }
  MSCCLPP_INLINE const T* data() const { return data_; }

 private:
  const T* data_;
};

/// A sink that writes an array of whole packs at a 16-byte aligned address.
template <class T>
class StorePacks {
 public:
  MSCCLPP_HOST_DEVICE explicit StorePacks(T* data) : data_(data) {}
  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<T>& result, int /*valid*/) const {
    arch::storeWide(data_ + first, toWord<T>(result));
  }
  MSCCLPP_INLINE T* data() const { return data_; }

 private:
  T* data_;
};

/// Whether LoadPacks and StorePacks serve `count` elements at data.
template <class T>
MSCCLPP_HOST_DEVICE bool isWholePacks(const T* data, std::size_t count) {
  return detail::isPackAligned(data) && count % packSize<T> == 0;
}

}  // namespace mscclpp
