// What a rank's experts contribute to the rows of a combine: weighted sums of their results, in fp32.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// `packs` packs of a row as sums in fp32, of one lane.
template <class T, int packs>
struct PackSums {
  float at[packs][packSize<T>];

  MSCCLPP_INLINE void add(int i, const Word128& word) {
    const Pack<T> pack = fromWord<T>(word);
    MSCCLPP_UNROLL
    for (int k = 0; k < packSize<T>; ++k) at[i][k] += widen<T>(pack[k]);
  }
  MSCCLPP_INLINE void addProducts(int i, float weight, const Word128& word) {
    const Pack<T> pack = fromWord<T>(word);
    MSCCLPP_UNROLL
    for (int k = 0; k < packSize<T>; ++k) at[i][k] = arch::multiplyAdd(weight, widen<T>(pack[k]), at[i][k]);
  }
  MSCCLPP_INLINE Pack<T> rounded(int i) const {
    Pack<T> pack;
    MSCCLPP_UNROLL
    for (int k = 0; k < packSize<T>; ++k) pack[k] = narrow<T>(arch::canonicalNan(at[i][k]));
    return pack;
  }
};

/// The sums of this rank's experts, as seen by a warp that computes `packs` packs of each lane at once: a chunk of a
/// row. The loads of `batch` results are in flight together. Source: see ExpertResults.
template <class T, WarpGroup Warp, int packs, int batch, class Source>
class ExpertSums {
 public:
  using Sums = PackSums<T, packs>;
  static constexpr int width = Warp::width;
  static constexpr int held = (maxTopk + width - 1) / width;  ///< entries of a row that a lane holds
  /// The entries of a row that this rank's experts got: lane l has those of choices l, l + width, ...
  struct Entries {
    std::uint32_t positions[held];  ///< -1: none, and what follows is of earlier calls
    std::uint32_t weights[held];    ///< the bits of a float
  };

  /// rowPacks: packs of a row.
  MSCCLPP_INLINE ExpertSums(const Warp& warp, const Dimensions& dimensions, const Handle& handle,
                            std::uint32_t rowPacks, const Source& source)
      : warp_(warp), dimensions_(dimensions), handle_(handle), rowPacks_(rowPacks), source_(source) {}

  /// The calling lane's pack i of a chunk; it may be beyond the row.
  MSCCLPP_INLINE std::uint32_t packOf(std::uint32_t chunk, int i) const {
    return chunk * static_cast<std::uint32_t>(packs * width) + static_cast<std::uint32_t>(i * width + warp_.rank());
  }

  /// The entries of a row from a rank, by one load of the warp; none if `from` is negative. Called by all lanes.
  MSCCLPP_INLINE Entries entriesOf(int from, std::uint32_t row) const {
    Entries entries;
    const std::size_t first = from < 0 ? 0 : Handle::entry(dimensions_, from, row);
    MSCCLPP_UNROLL
    for (int q = 0; q < held; ++q) {
      const int choice = q * width + warp_.rank();
      const std::size_t at = first + static_cast<std::size_t>(choice);
      const bool isEntry = from >= 0 && choice < dimensions_.topk;
      entries.positions[q] = static_cast<std::uint32_t>(isEntry ? handle_.positions[at] : -1);
      entries.weights[q] = isEntry ? arch::bitCast<std::uint32_t>(handle_.weights[at]) : 0u;
    }
    return entries;
  }

  /// A chunk of the sum of a row. meanwhile() is called once, when the first loads are under way. Called by all lanes.
  template <class Meanwhile>
  MSCCLPP_INLINE Sums sumOf(const Entries& entries, std::uint32_t chunk, const Meanwhile& meanwhile) const {
    const int count = countOf(entries);
    Sums sums = {};
    MSCCLPP_NO_UNROLL
    for (int first = 0; first == 0 || first < count; first += batch) {
      std::uint32_t position[batch];
      float weight[batch];
      Word128 words[batch][packs];
      MSCCLPP_UNROLL
      for (int c = 0; c < batch; ++c) {
        const int q = held == 1 ? 0 : (first + c) / width % held;
        const int lane = (first + c) % width;
        position[c] = warp_.shuffle(entries.positions[q], lane);
        weight[c] = arch::bitCast<float>(warp_.shuffle(entries.weights[q], lane));
      }
      MSCCLPP_UNROLL
      for (int c = 0; c < batch; ++c) {
        MSCCLPP_UNROLL
        for (int i = 0; i < packs; ++i) {
          const std::uint32_t pack = packOf(chunk, i);
          words[c][i] = {0, 0};
          if (first + c < count && pack < rowPacks_) words[c][i] = toWord<T>(source_(position[c], pack));
        }
      }
      if (first == 0) meanwhile();
      MSCCLPP_UNROLL
      for (int c = 0; c < batch; ++c) {
        MSCCLPP_UNROLL
        for (int i = 0; i < packs; ++i) {
          if (first + c < count) sums.addProducts(i, weight[c], words[c][i]);
        }
      }
    }
    return sums;
  }

 private:
  /// The number of entries: those before the first -1. Called by all lanes.
  MSCCLPP_INLINE int countOf(const Entries& entries) const {
    int count = 0;
    MSCCLPP_UNROLL
    for (int q = 0; q < held; ++q) {
      const std::uint32_t absent = warp_.ballot(static_cast<std::int32_t>(entries.positions[q]) < 0);
      if (count == q * width) count += absent == 0 ? width : arch::countBits(~absent & (absent - 1));
    }
    return count;
  }

  const Warp& warp_;
  const Dimensions& dimensions_;
  const Handle& handle_;
  const std::uint32_t rowPacks_;
  const Source& source_;
};

}  // namespace mscclpp::moe
