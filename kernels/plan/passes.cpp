#include "passes.hpp"

#include <algorithm>
#include <array>

#include "json_schema.hpp"
#include "message.hpp"
#include "mscclpp/plan/assembler.hpp"
#include "mscclpp/plan/overlap.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace {

bool isTransfer(const Step& step) {
  return step.operation.kind == OperationKind::Transfer;
}

/// What a step touches: all members of a switch channel.
std::vector<Operand> places(const Draft& draft, const Operand& operand) {
  if (operand.access != Access::Switch) return {operand};
  std::vector<Operand> all;
  for (const int member : draft.ranks[operand.rank].channels[operand.channel].members) {
    all.push_back(operand);
    all.back().access = member == operand.rank ? Access::Local : Access::Memory;
    all.back().rank = static_cast<std::int16_t>(member);
    all.back().channel = -1;
  }
  return all;
}

bool anyOverlap(const Draft& draft, const std::vector<Operand>& a, int aChunks, const std::vector<Operand>& b,
                int bChunks) {
  for (const Operand& x : a) {
    for (const Operand& y : b) {
      for (const Operand& p : places(draft, x)) {
        for (const Operand& q : places(draft, y)) {
          if (overlap(draft, p, aChunks, q, bChunks)) return true;
        }
      }
    }
  }
  return false;
}

bool contains(const std::vector<Operand>& list, const Operand& operand) {
  return std::find(list.begin(), list.end(), operand) != list.end();
}

bool sameShare(const Operation& a, const Operation& b) {
  return a.chunks == b.chunks && a.share == b.share && a.shares == b.shares;
}

bool fuseChannels(Step& last, const Step& next) {
  const OperationKind kind = next.operation.kind;
  const bool named = kind == OperationKind::Signal || kind == OperationKind::Wait || kind == OperationKind::Flush ||
                     kind == OperationKind::Acquire || kind == OperationKind::Release;
  if (!named || last.operation.kind != kind || last.operation.relaxed != next.operation.relaxed) return false;
  // Twice the same channel means twice a signal.
  for (const int reference : next.references) {
    if (std::find(last.references.begin(), last.references.end(), reference) != last.references.end()) return false;
  }
  last.references.insert(last.references.end(), next.references.begin(), next.references.end());
  return true;
}

/// d = a; d = d + b; d = d + c  becomes  d = a + b + c.
bool fuseSums(const Draft& draft, Step& last, const Step& next) {
  if (last.destinations.size() != 1 || next.destinations != last.destinations || next.sources.size() < 2 ||
      next.sources.front() != last.destinations.front() || last.destinations.front().form == Form::Packet) {
    return false;
  }
  const std::vector<Operand> added(next.sources.begin() + 1, next.sources.end());
  const int chunks = next.operation.chunks;
  if (anyOverlap(draft, added, chunks, last.destinations, chunks)) return false;
  last.sources.insert(last.sources.end(), added.begin(), added.end());
  return true;
}

/// Copies of what `last` reads alone, or of what it stores, become further destinations of it.
bool fuseCopies(const Draft& draft, Step& last, const Step& next) {
  if (next.sources.size() != 1) return false;
  const Operand& source = next.sources.front();
  const bool ofResult =
      contains(last.destinations, source) && source.form == Form::Plain && source.access == Access::Local;
  const bool ofSource = last.sources.size() == 1 && last.sources.front() == source && source.access != Access::Switch;
  if (!ofResult && !ofSource) return false;
  const auto isPort = [](const Operand& operand) { return operand.access == Access::Port; };
  if (std::any_of(next.destinations.begin(), next.destinations.end(), isPort) ||
      std::any_of(last.destinations.begin(), last.destinations.end(), isPort)) {
    return false;
  }
  const int chunks = next.operation.chunks;
  // What a switch stores everywhere need not be stored here before.
  Operand replaced = source;
  bool replaces = false;
  for (const Operand& destination : next.destinations) {
    if (destination.access != Access::Switch || destination.form != Form::Plain) continue;
    for (const Operand& place : places(draft, destination)) {
      replaces = replaces || (ofResult && canonical(draft, place) == canonical(draft, source));
    }
  }
  std::vector<Operand> kept = last.destinations;
  if (replaces) std::erase(kept, replaced);
  if (anyOverlap(draft, next.destinations, chunks, kept, chunks)) return false;
  // Elements of different threads: a destination that is a source must be exactly it.
  for (const Operand& destination : next.destinations) {
    if (contains(last.sources, destination) && destination.form == Form::Plain) continue;
    if (anyOverlap(draft, {destination}, chunks, last.sources, chunks) &&
        !(replaces && destination.access == Access::Switch)) {
      return false;
    }
  }
  // A multicast may overwrite a peer's source only where that peer has finished with it, which its owner knows.
  kept.insert(kept.end(), next.destinations.begin(), next.destinations.end());
  last.destinations = kept;
  return true;
}

bool fuseInto(const Draft& draft, Step& last, const Step& next) {
  if (!isTransfer(last) || !isTransfer(next)) return fuseChannels(last, next);
  if (!sameShare(last.operation, next.operation)) return false;
  return fuseSums(draft, last, next) || fuseCopies(draft, last, next);
}

bool storesPackets(const Step& step) {
  return std::any_of(step.destinations.begin(), step.destinations.end(),
                     [](const Operand& operand) { return operand.form == Form::Packet; });
}

}  // namespace

bool overlap(const Draft& draft, const Operand& a, int aChunks, const Operand& b, int bChunks) {
  const auto inputChunks = [&](int rank) { return draft.ranks[rank].inputChunks; };
  return overlap(draft.header, inputChunks, a, aChunks, b, bChunks);
}

std::vector<Step> fuse(const Draft& draft, const std::vector<Step>& steps) {
  std::vector<Step> fused;
  const auto isSync = [](const Step& step) { return step.operation.kind == OperationKind::Sync; };
  for (const Step& step : steps) {
    const std::size_t size = fused.size();
    if (size > 0 && fuseInto(draft, fused.back(), step)) continue;
    // Signals (or waits) with only a Sync between them: they need one before all of them and one after.
    if (size > 1 && isSync(fused.back()) && !isTransfer(step) && fuseChannels(fused[size - 2], step)) {
      if (size > 2 && !isSync(fused[size - 3])) {
        fused.insert(fused.end() - 2, {{.kind = OperationKind::Sync, .origin = step.operation.origin}});
      }
      continue;
    }
    if (isSync(step) && size > 0 && isSync(fused.back())) continue;
    // A transfer may wait for what the next one waits for, unless others need what it stores before.
    if (isTransfer(step)) {
      std::size_t last = size;
      while (last > 0 && (fused[last - 1].operation.kind == OperationKind::Wait ||
                          fused[last - 1].operation.kind == OperationKind::Acquire)) {
        --last;
      }
      const bool waits = last > 0 && last < size && isTransfer(fused[last - 1]) && !storesPackets(fused[last - 1]);
      if (waits && fuseInto(draft, fused[last - 1], step)) {
        std::rotate(fused.begin() + static_cast<std::ptrdiff_t>(last) - 1,
                    fused.begin() + static_cast<std::ptrdiff_t>(last), fused.end());
        continue;
      }
    }
    fused.push_back(step);
  }
  dropSelfCopies(draft, fused);
  return fused;
}

void dropSelfCopies(const Draft& draft, std::vector<Step>& steps) {
  for (Step& step : steps) {
    // A switch adds up what is at one place of several ranks.
    if (!isTransfer(step) || step.sources.size() != 1 || step.sources.front().access != Access::Local) continue;
    std::erase_if(step.destinations, [&](const Operand& destination) {
      for (int i = 0; i < step.operation.chunks; ++i) {
        if (canonical(draft, step.sources.front(), i) != canonical(draft, destination, i)) return false;
      }
      return destination.form == Form::Plain;
    });
  }
  std::erase_if(steps, [](const Step& step) { return isTransfer(step) && step.destinations.empty(); });
}

std::vector<Step> insertSyncs(const Draft& draft, const std::vector<Step>& steps, SyncScope scope) {
  std::vector<Operand> operands;
  std::vector<Operation> operations;
  const auto append = [&](const std::vector<Operand>& list) {
    const Range range{countOf(operands), 0};
    for (const Operand& operand : list) {
      const std::vector<Operand> all = places(draft, operand);
      operands.insert(operands.end(), all.begin(), all.end());
    }
    return Range{range.first, countOf(operands) - range.first};
  };
  for (const Step& step : steps) {
    operations.push_back(step.operation);
    operations.back().sources = append(step.sources);
    operations.back().destinations = append(step.destinations);
  }
  const auto overlaps = [&](const Operand& a, int aChunks, const Operand& b, int bChunks) {
    return overlap(draft, a, aChunks, b, bChunks);
  };
  SyncInsertion syncs(operands, scope, overlaps);
  std::vector<Step> ordered;
  const std::vector<std::int32_t> order = syncs.run(operations);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != syncs.sync) {
      ordered.push_back(steps[static_cast<std::size_t>(order[i])]);
    } else {
      const Step& next = steps[static_cast<std::size_t>(order[i + 1])];
      ordered.push_back({{.kind = OperationKind::Sync, .origin = next.operation.origin}});
    }
  }
  return ordered;
}

Replication fittingReplication(const Draft& draft) {
  for (const DraftRank& rank : draft.ranks) {
    for (const auto& block : rank.blocks) {
      for (const Step& step : block) {
        if (step.operation.chunks > 1) return Replication::Batched;
      }
    }
  }
  return Replication::Interleaved;
}

Draft replicate(const Draft& draft, int instances, Replication replication) {
  if (instances == 1) return draft;
  const Header& header = draft.header;
  const bool batched = replication == Replication::Batched && header.collective != CollectiveKind::Custom;
  // A chunk of a buffer whose parts have `part` chunks.
  const auto instanceOf = [&](int chunk, int part, int i) {
    const int k = chunk % part;
    return (chunk - k) * instances + (batched ? i * part + k : k * instances + i);
  };
  const auto instanceOfOperand = [&](const Operand& operand, int offset, int i) {
    const int scratch = draft.ranks[operand.rank].scratchChunks;
    return instanceOf(operand.first + offset, operand.buffer == BufferKind::Scratch ? scratch : header.chunksPerPart,
                      i);
  };
  Draft result = draft;
  if (header.collective != CollectiveKind::Custom) result.header.chunksPerPart *= instances;
  for (DraftRank& rank : result.ranks) {
    rank.inputChunks *= instances;
    rank.outputChunks *= instances;
    rank.scratchChunks *= instances;
    const DraftRank once = rank;
    rank.channels.clear();
    rank.semaphores.clear();
    rank.blocks.clear();
    for (const DraftChannel& channel : once.channels) rank.channels.insert(rank.channels.end(), instances, channel);
    for (const int value : once.semaphores) rank.semaphores.insert(rank.semaphores.end(), instances, value);
    for (const auto& steps : once.blocks) {
      for (int i = 0; i < instances; ++i) {
        auto& block = rank.blocks.emplace_back();
        for (const Step& step : steps) {
          Step moved = step;
          moved.operation.index = moved.operation.index * instances + i;
          for (int& reference : moved.references) reference = reference * instances + i;
          if (!isTransfer(step)) {
            block.push_back(std::move(moved));
            continue;
          }
          moved.operation.index = step.operation.index;
          // Chunks that stay next to each other in all operands stay one operation.
          const auto place = [&](int offset) {
            std::vector<int> firsts;
            for (const auto* list : {&step.sources, &step.destinations}) {
              for (const Operand& operand : *list) firsts.push_back(instanceOfOperand(operand, offset, i));
            }
            return firsts;
          };
          const auto follows = [](const std::vector<int>& a, const std::vector<int>& b) {
            return std::equal(a.begin(), a.end(), b.begin(), [](int x, int y) { return x + 1 == y; });
          };
          for (int begin = 0; begin < step.operation.chunks;) {
            int end = begin + 1;
            while (end < step.operation.chunks && follows(place(end - 1), place(end))) ++end;
            const auto firsts = place(begin);
            auto first = firsts.begin();
            for (auto* list : {&moved.sources, &moved.destinations}) {
              for (Operand& operand : *list) {
                operand.first = *first++;
                if (operand.channel >= 0) {
                  const auto* from = list == &moved.sources ? &step.sources : &step.destinations;
                  const int channel = (*from)[&operand - list->data()].channel;
                  operand.channel = static_cast<std::int16_t>(channel * instances + i);
                }
              }
            }
            moved.operation.position =
                instanceOf((step.operation.position + begin) % header.chunksPerPart, header.chunksPerPart, i);
            moved.operation.chunks = end - begin;
            block.push_back(moved);
            begin = end;
          }
        }
      }
    }
  }
  result.expectations.clear();
  for (const DraftExpectation& expectation : draft.expectations) {
    for (int i = 0; i < instances; ++i) {
      DraftExpectation moved = expectation;
      moved.chunk = moved.chunk * instances + i;
      for (auto& contribution : moved.contributions) contribution.second = contribution.second * instances + i;
      result.expectations.push_back(std::move(moved));
    }
  }
  return result;
}

std::vector<std::vector<int>> otherEnds(const Draft& draft) {
  Assembler assembler(draft.header);
  for (int r = 0; r < countOf(draft.ranks); ++r) {
    for (const DraftChannel& channel : draft.ranks[r].channels) assembler.addChannel(r, channel.access, channel.peer);
  }
  const Plan plan = assembler.finish();
  const std::vector<std::int32_t> ends = otherEnds(plan);
  std::vector<std::vector<int>> ofRanks;
  for (const RankPlan& rank : plan.rankPlans) {
    auto& others = ofRanks.emplace_back();
    for (int c = rank.channels.first; c < rank.channels.first + rank.channels.count; ++c) {
      const int first = plan.rankPlans[plan.channels[c].peer].channels.first;
      others.push_back(ends[c] < 0 ? -1 : ends[c] - first);
    }
  }
  return ofRanks;
}

void completeChannels(Draft& draft) {
  const std::vector<std::vector<int>> ends = otherEnds(draft);
  for (int r = 0; r < countOf(ends); ++r) {
    for (int c = 0; c < countOf(ends[r]); ++c) {
      const DraftChannel channel = draft.ranks[r].channels[c];
      if (channel.access == Access::Switch || ends[r][c] >= 0) continue;
      draft.ranks[channel.peer].channels.push_back({channel.access, r});
    }
  }
}

void requireMatchedSignals(const Draft& draft, const std::vector<std::vector<std::string>>& channelOrigins) {
  struct Uses {
    int count = 0;
    int block = -1;  ///< of the last
    int origin = -1;
  };
  // Of each channel end: signals and waits, outside of loops and in them.
  using EndUses = std::array<std::array<Uses, 2>, 2>;
  std::vector<std::vector<EndUses>> uses;
  for (const DraftRank& rank : draft.ranks) {
    auto& ends = uses.emplace_back(rank.channels.size());
    for (int b = 0; b < countOf(rank.blocks); ++b) {
      int inLoop = 0;
      for (const Step& step : rank.blocks[b]) {
        const OperationKind kind = step.operation.kind;
        if (kind == OperationKind::LoopBegin) inLoop = 1;
        if (kind == OperationKind::LoopEnd) inLoop = 0;
        if (kind != OperationKind::Signal && kind != OperationKind::Wait) continue;
        for (const int channel : step.references) {
          Uses& of = ends[channel][kind == OperationKind::Wait][inLoop];
          of = {of.count + 1, b, step.operation.origin};
        }
      }
    }
  }
  const auto times = [&](const char* verb, const Uses& of) {
    if (of.count == 0) return textOf(verb, " 0 times");
    const std::string line = of.origin >= 0 ? textOf(", made at ", draft.origins[of.origin]) : "";
    return textOf(verb, " ", of.count, of.count == 1 ? " time (in block " : " times (the last in block ", of.block,
                  line, ")");
  };
  const std::vector<std::vector<int>> ends = otherEnds(draft);
  for (int r = 0; r < countOf(draft.ranks); ++r) {
    for (int c = 0; c < countOf(draft.ranks[r].channels); ++c) {
      const DraftChannel& channel = draft.ranks[r].channels[c];
      if (channel.access == Access::Switch) continue;
      const int other = ends[r][c];
      for (const int inLoop : {0, 1}) {
        const Uses signals = uses[r][c][0][inLoop];
        const Uses waits = other < 0 ? Uses{} : uses[channel.peer][other][1][inLoop];
        const bool peerSignals = other >= 0 && uses[channel.peer][other][0][inLoop].count > 0;
        const Uses ownWaits = uses[r][c][1][inLoop];
        if (signals.count == waits.count && (other >= 0 || ownWaits.count == 0 || peerSignals)) continue;
        const bool tooFew = signals.count == waits.count;  // its own waits have no signals
        reject(channelOrigins[r][c], channelOrigins[r][c].empty() ? "" : ": ", "the ", keyOf(channel.access),
               " channel of rank ", r, " to rank ", channel.peer, inLoop != 0 ? ", in loops," : "", " is ",
               tooFew ? times("waited on", ownWaits) : times("signalled", signals), ", and rank ", channel.peer,
               tooFew ? " signals 0 times" : times(" waits", waits), " on its channel to rank ", r,
               "; each signal needs one wait");
      }
    }
  }
}

}  // namespace mscclpp::plan
