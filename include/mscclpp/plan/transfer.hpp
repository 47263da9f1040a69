// Transfer, the one data operation of plans: reads operands, reduces them, and writes operands.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/plan/packs.hpp"

namespace mscclpp::plan {

/// What all packs of a transfer share.
template <class Op>
struct TransferSettings {
  Op op;
  PacketFormat format;
  std::uint32_t flag;  ///< of the packets of this call
  int divisor;         ///< of averages: 1 for partial sums
  PlanSite site;
};

namespace detail {

/// The operands of a transfer of one run of bytes. Sources, Destinations: their numbers, 0: known only at run time;
/// Find: int -> Place, the i-th operand, sources first.
template <int Sources, int Destinations, class Find>
class Operands {
 public:
  static constexpr int sources = Sources;
  static constexpr int destinations = Destinations;
  MSCCLPP_INLINE Operands(const Find& find, int, int) {
    MSCCLPP_UNROLL
    for (int i = 0; i < Sources + Destinations; ++i) places_[i] = find(i);
  }
  MSCCLPP_INLINE int sourceCount() const { return Sources; }
  MSCCLPP_INLINE int destinationCount() const { return Destinations; }
  MSCCLPP_INLINE Place at(int i) const { return places_[i]; }

 private:
  Place places_[Sources + Destinations];
};
template <class Find>
class Operands<0, 0, Find> {
 public:
  static constexpr int sources = 0;
  static constexpr int destinations = 0;
  MSCCLPP_INLINE Operands(const Find& find, int sourceCount, int destinationCount)
      : find_(find), sources_(sourceCount), destinations_(destinationCount) {}
  MSCCLPP_INLINE int sourceCount() const { return sources_; }
  MSCCLPP_INLINE int destinationCount() const { return destinations_; }
  MSCCLPP_INLINE Place at(int i) const { return find_(i); }

 private:
  const Find& find_;
  int sources_;
  int destinations_;
};

/// Sources whose loads are in flight together, if their number is known only at run time.
inline constexpr int sourceBatch = 4;
/// The most operands of each kind that code is unrolled for.
inline constexpr int mostUnrolled = 8;

/// Transfers `left` bytes, 16 at most, at `offset` from the places; any form and alignment. isWhole: there are 16 at
/// least, and plain places are aligned to 16. Writes nothing if a wait for a packet fails.
template <bool isWhole, class T, class OperandsOf, class Op, class Wait>
MSCCLPP_INLINE void transferPack(const OperandsOf& operands, std::uint64_t offset, std::uint64_t left,
                                 const TransferSettings<Op>& settings, Wait& wait) {
  const std::uint64_t valid = isWhole || left > sizeof(Word128) ? sizeof(Word128) : left;
  const auto isWide = [&](const Place& place) { return isWhole || (valid == sizeof(Word128) && place.isAligned()); };
  const int sources = OperandsOf::sources > 0 ? OperandsOf::sources : operands.sourceCount();
  const auto tryLoad = [&](int i, Word128& word) {
    const Place place = operands.at(i).further(offset);
    if (place.form == Form::Packet) return tryReadPackets(settings.format, place.address, valid, settings.flag, word);
    word = isWide(place) ? arch::loadWide(place.address) : loadElements<T>(place.address, valid);
    return true;
  };
  bool arrived = true;
  const auto await = [&](int i, Word128& word) {
    const WaitSite site = settings.site.waitFor(WaitOperation::PlanPacket, operands.at(i).writer, settings.flag);
    arrived = wait.until(site, [&](std::uint64_t& seen) {
      const bool complete = tryLoad(i, word);
      seen = complete ? settings.flag : 0;
      return complete;
    }) && arrived;
  };

  Word128 result;
  if (sources == 1) {
    if (!tryLoad(0, result)) await(0, result);
  } else {
    constexpr int batch = OperandsOf::sources > 0 ? OperandsOf::sources : sourceBatch;
    static_assert(batch <= mostUnrolled, "so many sources are not unrolled");
    Word128 words[batch];
    bool isComplete[batch];
    const auto load = [&](int first) {
      MSCCLPP_UNROLL
      for (int j = 0; j < batch; ++j) isComplete[j] = first + j >= sources || tryLoad(first + j, words[j]);
      MSCCLPP_UNROLL
      for (int j = 0; j < batch; ++j) {
        if (!isComplete[j]) await(first + j, words[j]);
      }
    };
    load(0);
    PackReducer<T, Op> reducer(fromWord<T>(words[0]), settings.op);
    for (int first = 0;;) {
      MSCCLPP_UNROLL
      for (int j = 0; j < batch; ++j) {
        if (first + j != 0 && first + j < sources) reducer.add(fromWord<T>(words[j]));
      }
      first += batch;
      if (OperandsOf::sources > 0 || first >= sources) break;
      load(first);
    }
    result = toWord<T>(reducer.finish(settings.divisor));
  }
  if (!arrived) return;
  const auto store = [&](int i) {
    const Place place = operands.at(sources + i).further(offset);
    if (place.form == Form::Packet) {
      writePackets(settings.format, place.address, result, valid, settings.flag);
    } else if (isWide(place)) {
      arch::storeWide(place.address, result);
    } else {
      storeElements<T>(place.address, result, valid);
    }
  };
  if constexpr (OperandsOf::destinations > 0) {
    MSCCLPP_UNROLL
    for (int i = 0; i < OperandsOf::destinations; ++i) store(i);
  } else {
    for (int i = 0; i < operands.destinationCount(); ++i) store(i);
  }
}

/// Transfers whole packs [first, ...) of plain, aligned operands, `Unroll` at a time; returns the first one that
/// remains. The numbers of operands are known at compile time.
template <int Unroll, class T, class OperandsOf, class Op>
MSCCLPP_INLINE std::uint64_t transferAligned(const OperandsOf& operands, std::uint64_t first, std::uint64_t step,
                                             std::uint64_t packs, const Op& op, int divisor) {
  constexpr int sources = OperandsOf::sources;
  std::uint64_t i = first;
  for (; i + (Unroll - 1) * step < packs; i += Unroll * step) {
    Word128 words[Unroll][sources];
    MSCCLPP_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      MSCCLPP_UNROLL
      for (int s = 0; s < sources; ++s)
        words[u][s] = arch::loadWide(operands.at(s).address + (i + u * step) * sizeof(Word128));
    }
    MSCCLPP_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      Word128 result = words[u][0];
      if constexpr (sources > 1) result = reduceWords<T>(words[u], op, divisor);
      MSCCLPP_UNROLL
      for (int d = 0; d < OperandsOf::destinations; ++d)
        arch::storeWide(operands.at(sources + d).address + (i + u * step) * sizeof(Word128), result);
    }
  }
  return i;
}

}  // namespace detail

/// Transfers the whole packs of operands of which the plain ones are aligned to 16 bytes, the fastest way; returns the
/// first pack of this thread that remains for transferPacks(): the incomplete last one, or all of them if an operand is
/// not aligned. Arguments as for transferPacks(), with numbers of operands that are known at compile time.
template <int Sources, int Destinations, class T, ThreadGroup Group, class Find, class Op, WaitPolicy Wait>
MSCCLPP_INLINE std::uint64_t transferWholePacks(const Group& group, const Find& find, std::uint64_t bytes,
                                                const TransferSettings<Op>& settings, Wait& wait) {
  static_assert(Sources > 0 && Destinations > 0, "the numbers of operands are known at compile time");
  const detail::Operands<Sources, Destinations, Find> operands(find, Sources, Destinations);
  const auto step = static_cast<std::uint64_t>(group.size());
  auto pack = static_cast<std::uint64_t>(group.rank());
  bool isAligned = true;
  bool hasPackets = false;
  MSCCLPP_UNROLL
  for (int i = 0; i < Sources + Destinations; ++i) {
    const Place place = operands.at(i);
    hasPackets = hasPackets || place.form == Form::Packet;
    isAligned = isAligned && (place.form == Form::Packet || place.isAligned());
  }
  if (!isAligned) return pack;
  const std::uint64_t whole = bytes / sizeof(Word128);
  if (hasPackets) {
    // A loop for each format: a choice for each pack would take as many instructions as the rest of the loop.
    const auto transferAll = [&](PacketFormat format) {
      TransferSettings<Op> known = settings;
      known.format = format;
      MSCCLPP_NO_UNROLL
      for (; pack < whole; pack += step)
        detail::transferPack<true, T>(operands, pack * sizeof(Word128), sizeof(Word128), known, wait);
    };
    if (settings.format == PacketFormat::LL16) {
      transferAll(PacketFormat::LL16);
    } else {
      transferAll(PacketFormat::LL8);
    }
    return pack;
  }
  constexpr int unroll = Sources >= 4 ? 1 : 4 / Sources;
  pack = detail::transferAligned<unroll, T>(operands, pack, step, whole, settings.op, settings.divisor);
  if constexpr (unroll > 1) {
    pack = detail::transferAligned<1, T>(operands, pack, step, whole, settings.op, settings.divisor);
  }
  return pack;
}

/// Transfers `bytes` bytes, a multiple of the elements' size: each pack of 16 bytes of every destination becomes the
/// reduction of the packs of all sources, in their order, rounded once. Called by every thread of the group; does not
/// sync: thread t transfers the packs t, t + group.size() and so on, of which those before `firstPack` are done. A
/// failed wait for a packet leaves packs unwritten, and shows in `wait`.
///
/// find(i): the place of operand i, sources first. T: the type of the elements, to which plain places are aligned.
template <class T, ThreadGroup Group, class Find, class Op, WaitPolicy Wait>
MSCCLPP_INLINE void transferPacks(const Group& group, int sourceCount, int destinationCount, const Find& find,
                                  std::uint64_t bytes, std::uint64_t firstPack, const TransferSettings<Op>& settings,
                                  Wait& wait) {
  const detail::Operands<0, 0, Find> operands(find, sourceCount, destinationCount);
  const std::uint64_t packs = ceilDivide(bytes, sizeof(Word128));
  MSCCLPP_NO_UNROLL
  for (std::uint64_t pack = firstPack; pack < packs; pack += static_cast<std::uint64_t>(group.size())) {
    const std::uint64_t offset = pack * sizeof(Word128);
    detail::transferPack<false, T>(operands, offset, bytes - offset, settings, wait);
  }
}

}  // namespace mscclpp::plan
