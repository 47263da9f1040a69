// The rule by which a rank may write a slot of its peer's scratch again.
#pragma once

#include "mscclpp/collective/config.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// How a rank knows that its peer has read a slot, before it writes the slot again.
enum class SlotReuse {
  /// By the data itself: the result of every rank depends on data from every rank, as in an all-reduce or an
  /// all-gather. So a rank that enters call k knows that every peer has completed call k - 2, and nothing is sent for
  /// this purpose. docs/memory_model.md has the proof.
  ByData,
  /// By credits: a rank that enters a call tells every peer that it has completed the calls before. A rank that
  /// receives nothing, like the root of a broadcast, may be three calls ahead. For all other collectives.
  ByCredits
};

/// The rule of a collective in which every rank needs data of every rank. With Link::Outputs a rank has to say that it
/// has entered the call before its peers store to its output.
MSCCLPP_HOST_DEVICE constexpr SlotReuse reuseOf(Link link) {
  return link == Link::Outputs ? SlotReuse::ByCredits : SlotReuse::ByData;
}

}  // namespace mscclpp
