// The rule by which a rank may write a slot of its peer's scratch again.
#pragma once

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

}  // namespace mscclpp
