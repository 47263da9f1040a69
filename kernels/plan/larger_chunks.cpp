#include <numeric>

#include "passes.hpp"

namespace mscclpp::plan {

namespace {

/// Calls use(number) for all numbers of chunks that transfers have, by reference.
template <class Use>
void forEachChunkNumber(Draft& draft, const Use& use) {
  for (DraftRank& rank : draft.ranks) {
    for (auto& steps : rank.blocks) {
      for (Step& step : steps) {
        if (step.operation.kind != OperationKind::Transfer) continue;
        use(step.operation.chunks);
        for (auto* const list : {&step.sources, &step.destinations}) {
          for (Operand& operand : *list) use(operand.first);
        }
      }
    }
  }
}

}  // namespace

void joinChunks(Draft& draft) {
  if (draft.header.collective == CollectiveKind::Custom) return;
  int factor = draft.header.chunksPerPart;
  forEachChunkNumber(draft, [&](int& number) { factor = std::gcd(factor, number); });
  if (factor <= 1) return;
  forEachChunkNumber(draft, [&](int& number) { number /= factor; });
  draft.header.chunksPerPart /= factor;
  for (DraftRank& rank : draft.ranks) {
    rank.inputChunks /= factor;
    rank.outputChunks /= factor;
    rank.scratchChunks = (rank.scratchChunks + factor - 1) / factor;
  }
}

}  // namespace mscclpp::plan
