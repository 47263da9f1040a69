// Layouts: how the elements of a collective are divided into one slice per rank, and a slice into packs.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

// A layout of elements T has, for each slice,
//   packs(slice): its number of packs; longest(): the largest number of packs of a slice, the same on all ranks
//   first(slice, i): the index of the first element of its pack i, as sources and sinks get it
//   valid(slice, i): the number of elements of its pack i: packSize<T> for all but the last
// Index: the type of numbers of packs, of 32 bits where addresses are most of the work (packet kernels).

namespace detail {

/// The part of `left` elements that is in one pack.
template <class T>
MSCCLPP_INLINE int validOf(std::size_t left) {
  return left < packSize<T> ? static_cast<int>(left) : packSize<T>;
}
template <class T, class Index>
MSCCLPP_INLINE Index packsOf(std::size_t count) {
  return static_cast<Index>(ceilDivide(count, packSize<T>));
}

}  // namespace detail

/// Every slice is the whole message of `count` elements. maxCount: at least that of every rank, and the same on all
/// ranks, where messages of the ranks differ in length; they are in stages of the own slice then.
template <class T, class Index>
class WholeMessage {
 public:
  using Element = T;
  MSCCLPP_INLINE explicit WholeMessage(std::size_t count) : WholeMessage(count, count) {}
  MSCCLPP_INLINE WholeMessage(std::size_t count, std::size_t maxCount)
      : count_(count), packs_(detail::packsOf<T, Index>(count)), longest_(detail::packsOf<T, Index>(maxCount)) {}

  MSCCLPP_INLINE Index longest() const { return longest_; }
  MSCCLPP_INLINE Index packs(int /*slice*/) const { return packs_; }
  MSCCLPP_INLINE std::size_t first(int /*slice*/, Index i) const { return std::size_t{i} * packSize<T>; }
  MSCCLPP_INLINE int valid(int slice, Index i) const { return detail::validOf<T>(count_ - first(slice, i)); }

 private:
  std::size_t count_;
  Index packs_;
  Index longest_;
};

/// A message of `count` elements in equal slices of whole packs, which start on 128-byte boundaries of the message; the
/// last ones may be shorter or empty.
template <class T, class Index>
class EvenSlices {
 public:
  using Element = T;
  MSCCLPP_INLINE EvenSlices(std::size_t count, int slices)
      : count_(count),
        packs_(detail::packsOf<T, Index>(count)),
        slice_(static_cast<Index>(longestSlice(packs_, slices))) {}

  /// The packs of the longest slice of a message of `packs` packs.
  static MSCCLPP_HOST_DEVICE std::size_t longestSlice(std::size_t packs, int slices) {
    return roundUp(ceilDivide(packs, static_cast<std::size_t>(slices)), 8);
  }

  MSCCLPP_INLINE Index longest() const { return slice_; }
  MSCCLPP_INLINE Index packs(int slice) const {
    const Index start = static_cast<Index>(slice) * slice_;
    return start >= packs_ ? 0 : packs_ - start < slice_ ? packs_ - start : slice_;
  }
  MSCCLPP_INLINE std::size_t first(int slice, Index i) const {
    return (std::size_t{static_cast<Index>(slice) * slice_} + i) * packSize<T>;
  }
  MSCCLPP_INLINE int valid(int slice, Index i) const { return detail::validOf<T>(count_ - first(slice, i)); }

 private:
  std::size_t count_;
  Index packs_;
  Index slice_;
};

/// One slice of `count` elements for each rank, one after the other, aligned to elements only.
template <class T, class Index>
class RankSlices {
 public:
  using Element = T;
  MSCCLPP_INLINE explicit RankSlices(std::size_t count) : count_(count), packs_(detail::packsOf<T, Index>(count)) {}

  MSCCLPP_INLINE Index longest() const { return packs_; }
  MSCCLPP_INLINE Index packs(int /*slice*/) const { return packs_; }
  MSCCLPP_INLINE std::size_t first(int slice, Index i) const {
    return static_cast<std::size_t>(slice) * count_ + std::size_t{i} * packSize<T>;
  }
  MSCCLPP_INLINE int valid(int /*slice*/, Index i) const {
    return detail::validOf<T>(count_ - std::size_t{i} * packSize<T>);
  }

 private:
  std::size_t count_;
  Index packs_;
};

/// A slice of counts[r] elements for each rank r, which begins at element offsets[r]; aligned to elements only.
/// maxCount: at least every count of every rank, and the same on all ranks. The arrays have an entry for each rank of
/// the team and must outlive the layout: they are in the arguments of the collective.
template <class T, class Index>
class VariableSlices {
 public:
  using Element = T;
  MSCCLPP_INLINE VariableSlices(const std::size_t* counts, const std::size_t* offsets, std::size_t maxCount)
      : counts_(counts), offsets_(offsets), longest_(detail::packsOf<T, Index>(maxCount)) {}

  MSCCLPP_INLINE Index longest() const { return longest_; }
  MSCCLPP_INLINE Index packs(int slice) const { return detail::packsOf<T, Index>(counts_[slice]); }
  MSCCLPP_INLINE std::size_t first(int slice, Index i) const { return offsets_[slice] + std::size_t{i} * packSize<T>; }
  MSCCLPP_INLINE int valid(int slice, Index i) const {
    return detail::validOf<T>(counts_[slice] - std::size_t{i} * packSize<T>);
  }

 private:
  const std::size_t* counts_;
  const std::size_t* offsets_;
  Index longest_;
};

}  // namespace mscclpp
