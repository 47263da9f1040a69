#include <algorithm>
#include <unordered_map>

#include "message.hpp"
#include "passes.hpp"

namespace mscclpp::plan {

namespace {

bool isDataTransfer(const Step& step) {
  return step.operation.kind == OperationKind::Transfer;
}
bool isOwnPlain(const Operand& operand) {
  return operand.form == Form::Plain && operand.access == Access::Local;
}

/// How many steps of a draft read each chunk, and how many write it. Chunks of a switch channel count as those of all
/// its members.
class ChunkUses {
 public:
  explicit ChunkUses(const Draft& draft) : draft_(draft) {
    for (const DraftRank& rank : draft.ranks) {
      for (const auto& steps : rank.blocks) {
        for (const Step& step : steps) {
          for (const Operand& operand : step.sources) add(operand, step.operation.chunks, &Uses::reads);
          for (const Operand& operand : step.destinations) add(operand, step.operation.chunks, &Uses::writes);
        }
      }
    }
  }

  /// Of the chunk of an operand that most steps read, or write.
  int mostReads(const Operand& operand, int chunks) const { return most(operand, chunks, &Uses::reads); }
  int mostWrites(const Operand& operand, int chunks) const { return most(operand, chunks, &Uses::writes); }

 private:
  struct Uses {
    int reads = 0;
    int writes = 0;
  };

  std::uint64_t keyOf(Operand operand, int rank, int chunk) const {
    operand.access = Access::Local;
    operand.rank = static_cast<std::int16_t>(rank);
    const Operand of = canonical(draft_, operand, chunk);
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(of.first)) << 32 |
           static_cast<std::uint64_t>(static_cast<std::uint16_t>(of.rank)) << 8 | static_cast<std::uint64_t>(of.buffer);
  }
  void add(const Operand& operand, int chunks, int Uses::*count) {
    const auto addOf = [&](int rank) {
      for (int i = 0; i < chunks; ++i) ++(uses_[keyOf(operand, rank, i)].*count);
    };
    if (operand.access != Access::Switch) return addOf(operand.rank);
    for (const int member : draft_.ranks[operand.rank].channels[operand.channel].members) addOf(member);
  }
  int most(const Operand& operand, int chunks, int Uses::*count) const {
    int result = 0;
    for (int i = 0; i < chunks; ++i) {
      const auto found = uses_.find(keyOf(operand, operand.rank, i));
      if (found != uses_.end()) result = std::max(result, found->second.*count);
    }
    return result;
  }

  const Draft& draft_;
  std::unordered_map<std::uint64_t, Uses> uses_;
};

/// The transfer that follows step `copy` of a block, with nothing but transfers in between, and may read what the step
/// copies in place of `copied`, one of its destinations; null if there is none.
Step* findReader(const Draft& draft, const ChunkUses& uses, std::vector<Step>& steps, std::size_t copy,
                 const Operand& copied) {
  const Operation& operation = steps[copy].operation;
  const auto touches = [&](const Step& step, const std::vector<Operand>& operands) {
    return std::count_if(operands.begin(), operands.end(), [&](const Operand& operand) {
      return overlap(draft, operand, step.operation.chunks, copied, operation.chunks);
    });
  };
  for (std::size_t i = copy + 1; i < steps.size() && isDataTransfer(steps[i]); ++i) {
    Step& step = steps[i];
    const auto reads = touches(step, step.sources);
    const auto writes = touches(step, step.destinations);
    if (reads == 0 && writes == 0) continue;
    const bool isSame = step.operation.chunks == operation.chunks && step.operation.share == operation.share &&
                        step.operation.shares == operation.shares;
    const bool readsIt = reads == 1 && std::count(step.sources.begin(), step.sources.end(), copied) == 1;
    const bool replacesIt = writes == 1 && std::count(step.destinations.begin(), step.destinations.end(), copied) == 1;
    const bool isOnly = copied.buffer == BufferKind::Scratch && writes == 0 &&
                        uses.mostReads(copied, operation.chunks) == 1 && uses.mostWrites(copied, operation.chunks) == 1;
    const bool toPort = step.destinations.front().access == Access::Port;
    return isSame && readsIt && (replacesIt || isOnly) && !toPort ? &step : nullptr;
  }
  return nullptr;
}

/// Whether a later read finds what the copy finds: packets that nothing else reads, or input that nobody writes.
bool isReadableLater(const ChunkUses& uses, const Step& copy) {
  const Operand& source = copy.sources.front();
  if (source.form == Form::Packet) return source.access == Access::Local && copy.destinations.size() == 1;
  return isOwnPlain(source) && source.buffer == BufferKind::Input &&
         uses.mostWrites(source, copy.operation.chunks) == 0;
}

}  // namespace

void forwardCopies(Draft& draft) {
  const ChunkUses uses(draft);  // counts of before: none becomes larger
  for (DraftRank& rank : draft.ranks) {
    for (auto& steps : rank.blocks) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        Step& copy = steps[i];
        if (!isDataTransfer(copy) || copy.sources.size() != 1 || !isReadableLater(uses, copy)) continue;
        std::erase_if(copy.destinations, [&](const Operand& copied) {
          Step* const reader = isOwnPlain(copied) ? findReader(draft, uses, steps, i, copied) : nullptr;
          if (reader == nullptr) return false;
          std::replace(reader->sources.begin(), reader->sources.end(), Operand(copied), copy.sources.front());
          return true;
        });
      }
      std::erase_if(steps, [](const Step& step) { return isDataTransfer(step) && step.destinations.empty(); });
    }
  }
}

void dropUnreadStores(Draft& draft) {
  const ChunkUses uses(draft);
  for (DraftRank& rank : draft.ranks) {
    for (auto& steps : rank.blocks) {
      for (Step& step : steps) {
        for (std::size_t d = 0; d < step.destinations.size() && step.destinations.size() > 1;) {
          const Operand& to = step.destinations[d];
          const bool isUnread =
              isOwnPlain(to) && to.buffer == BufferKind::Scratch && uses.mostReads(to, step.operation.chunks) == 0;
          if (isUnread) {
            step.destinations.erase(step.destinations.begin() + static_cast<std::ptrdiff_t>(d));
          } else {
            ++d;
          }
        }
      }
    }
  }
}

}  // namespace mscclpp::plan
