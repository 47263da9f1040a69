#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "draft.hpp"
#include "json_schema.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "passes.hpp"

namespace mscclpp::plan {

namespace {

using OrderedJson = nlohmann::ordered_json;

/// The reference's arrays of operands and channels of an operation have eight entries.
constexpr std::size_t maxEntries = 8;

Entry entryOf(const Operand& operand) {
  const bool packet = operand.form == Form::Packet;
  switch (operand.access) {
    case Access::Local:
      return packet ? Entry::Packet : Entry::Plain;
    case Access::Switch:
      return packet ? Entry::SwitchPacket : Entry::SwitchPlain;
    default:
      return packet ? Entry::RemotePacket : Entry::RemotePlain;
  }
}

/// The place of a value in a list, to which it is added if it is not in it.
template <class T>
int indexIn(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<int>(found - list.begin());
  list.push_back(value);
  return countOf(list) - 1;
}

class RankWriter {
 public:
  RankWriter(const Draft& draft, int rank) : draft_(draft), rank_(draft.ranks[rank]), id_(rank) {}

  OrderedJson write() {
    OrderedJson gpu{{"id", id_},
                    {"input_chunks", rank_.inputChunks},
                    {"output_chunks", rank_.outputChunks},
                    {"scratch_chunks", rank_.scratchChunks}};
    OrderedJson blocks = OrderedJson::array();
    numberChannels();
    for (int b = 0; b < countOf(rank_.blocks); ++b) blocks.push_back(writeBlock(b));
    gpu["channels"] = writeChannels();
    gpu["remote_buffers"] = OrderedJson::array();
    for (std::size_t i = 0; i < remotes_.size(); ++i) {
      OrderedJson access = OrderedJson::array();
      for (const Access type : remoteAccess_[static_cast<int>(i)]) access.push_back(keyOf(type));
      gpu["remote_buffers"].push_back({{"rank", remotes_[i].first},
                                       {"type", keyOf(remotes_[i].second)},
                                       {"access_channel_types", std::move(access)}});
    }
    gpu["semaphores"] = OrderedJson::array();
    for (const int value : rank_.semaphores) gpu["semaphores"].push_back({{"init_value", value}});
    gpu["threadblocks"] = std::move(blocks);
    return gpu;
  }

 private:
  using Remote = std::pair<int, BufferKind>;

  /// Channels are numbered per type, switch channels by their buffer first.
  void numberChannels() {
    ids_.assign(rank_.channels.size(), 0);
    for (const Access access : {Access::Memory, Access::Port, Access::Switch}) {
      int next = 0;
      for (const BufferKind buffer : {BufferKind::Input, BufferKind::Output, BufferKind::Scratch}) {
        for (std::size_t i = 0; i < rank_.channels.size(); ++i) {
          const DraftChannel& channel = rank_.channels[i];
          const BufferKind group = access == Access::Switch ? channel.buffer : BufferKind::Input;
          if (channel.access == access && group == buffer) ids_[i] = next++;
        }
      }
    }
  }

  OrderedJson writeChannels() const {
    OrderedJson channels = OrderedJson::array();
    for (const Access access : {Access::Memory, Access::Port}) {
      OrderedJson peers = OrderedJson::array();
      for (const DraftChannel& channel : rank_.channels) {
        if (channel.access == access) peers.push_back(channel.peer);
      }
      if (!peers.empty()) channels.push_back({{"channel_type", keyOf(access)}, {"connected_to", std::move(peers)}});
    }
    for (const BufferKind buffer : {BufferKind::Input, BufferKind::Output, BufferKind::Scratch}) {
      OrderedJson groups = OrderedJson::array();
      for (const DraftChannel& channel : rank_.channels) {
        if (channel.access != Access::Switch || channel.buffer != buffer) continue;
        groups.push_back({{"size", channel.members.size()}, {"ranks", channel.members}});
      }
      if (!groups.empty()) {
        channels.push_back(
            {{"channel_type", "switch"}, {"buffer_type", keyOf(buffer)}, {"rank_groups", std::move(groups)}});
      }
    }
    return channels;
  }

  OrderedJson writeBlock(int block) {
    block_ = block;
    channels_.clear();
    blockRemotes_.clear();
    const auto& steps = rank_.blocks[block];
    OrderedJson operations = OrderedJson::array();
    OrderedJson* target = &operations;
    OrderedJson loop;
    for (next_ = 0; next_ < countOf(steps);) {
      const int at = next_++;
      const Step& step = steps[at];
      if (step.operation.kind == OperationKind::LoopBegin) {
        const int chunks = loopChunks(at);
        loop = {
            {"name", "pipeline"},
            {"iter_context",
             {{"unit_size", step.operation.unitBytes * static_cast<std::uint64_t>(chunks)}, {"num_chunks", chunks}}},
            {"ops", OrderedJson::array()}};
        target = &loop["ops"];
      } else if (step.operation.kind == OperationKind::LoopEnd) {
        operations.push_back(loop);
        target = &operations;
      } else if (step.operation.kind == OperationKind::Transfer) {
        writeTransfer(at, *target);
      } else {
        writeSynchronisation(step, *target);
      }
    }
    OrderedJson channels = OrderedJson::array(), remotes = OrderedJson::array();
    for (const auto& [access, list] : channels_) {
      OrderedJson ids = OrderedJson::array();
      for (const int channel : list) ids.push_back(ids_[channel]);
      channels.push_back({{"channel_type", keyOf(access)}, {"channel_ids", std::move(ids)}});
    }
    for (const auto& [access, list] : blockRemotes_) {
      remotes.push_back({{"access_channel_type", keyOf(access)}, {"remote_buffer_ids", list}});
    }
    return {{"id", block},
            {"ops", std::move(operations)},
            {"channels", std::move(channels)},
            {"remote_buffer_refs", std::move(remotes)}};
  }

  /// The number of chunks that operations of a loop have: the reference's unit is that of all of them together.
  int loopChunks(int begin) const {
    int chunks = 1;
    const auto& steps = rank_.blocks[block_];
    for (int i = begin + 1; i < countOf(steps) && steps[i].operation.kind != OperationKind::LoopEnd; ++i) {
      chunks = std::max(chunks, static_cast<int>(steps[i].operation.chunks));
    }
    return chunks;
  }

  OrderedJson channelIds(const std::vector<int>& channels) {
    OrderedJson ids = OrderedJson::array();
    for (const int channel : channels) {
      ids.push_back(indexIn(channels_[rank_.channels[channel].access], channel));
    }
    return ids;
  }

  void writeSynchronisation(const Step& step, OrderedJson& operations) {
    const Operation& operation = step.operation;
    const auto named = std::find_if(synchronisationNames.begin(), synchronisationNames.end(), [&](const auto& entry) {
      return entry.kind == operation.kind && entry.relaxed == operation.relaxed;
    });
    OrderedJson json{{"name", named->name}};
    switch (operation.kind) {
      case OperationKind::Sync:
        break;
      case OperationKind::Barrier:
        json["barrier_id"] = operation.index;
        json["num_threadblocks"] = operation.blocks;
        break;
      case OperationKind::Acquire:
      case OperationKind::Release:
        json["semaphore_ids"] = step.references;
        break;
      default:
        // One operation for each type of channel and eight channels.
        for (const Access access : {Access::Memory, Access::Port}) {
          std::vector<int> channels;
          for (const int channel : step.references) {
            if (rank_.channels[channel].access == access) channels.push_back(channel);
          }
          for (std::size_t first = 0; first < channels.size(); first += maxEntries) {
            const auto end =
                channels.begin() + static_cast<std::ptrdiff_t>(std::min(channels.size(), first + maxEntries));
            json["channel_ids"] = channelIds({channels.begin() + static_cast<std::ptrdiff_t>(first), end});
            json["channel_type"] = keyOf(access);
            operations.push_back(json);
          }
        }
        return;
    }
    operations.push_back(std::move(json));
  }

  OrderedJson entry(const Operand& operand, int chunks) {
    OrderedJson json;
    if (operand.access == Access::Local) {
      json["type"] = keyOf(operand.buffer);
    } else if (operand.access == Access::Switch) {
      json["switch_channel_id"] = indexIn(channels_[Access::Switch], static_cast<int>(operand.channel));
    } else {
      const int remote = indexIn(remotes_, Remote{operand.rank, operand.buffer});
      indexIn(remoteAccess_[remote], operand.access);
      json["buffer_id"] = indexIn(blockRemotes_[operand.access], remote);
    }
    json["index"] = operand.first;
    json["size"] = chunks;
    return json;
  }

  OrderedJson named(const char* name, const Operation& operation, const std::vector<Operand>& sources,
                    const std::vector<Operand>& destinations) {
    OrderedJson json{{"name", name}, {"src_buff", OrderedJson::array()}, {"dst_buff", OrderedJson::array()}};
    std::optional<Access> remote;
    std::vector<int> ports;
    for (const Operand& operand : sources) {
      json["src_buff"].push_back(entry(operand, operation.chunks));
      if (operand.access != Access::Local) remote = operand.access;
    }
    for (const Operand& operand : destinations) {
      json["dst_buff"].push_back(entry(operand, operation.chunks));
      if (operand.access != Access::Local) remote = operand.access;
      if (operand.access == Access::Port) ports.push_back(operand.channel);
    }
    if (remote) json["channel_type"] = keyOf(*remote);
    if (!ports.empty()) json["channel_ids"] = channelIds(ports);
    if (operation.shares > 1) json["tbg_info"] = {{"tb_id", operation.share}, {"tbg_size", operation.shares}};
    return json;
  }

  [[noreturn]] void fail(int at, const std::string& why) const {
    reject("plan: ", placeOf(draft_, id_, block_, at), ": ", why,
           ": the reference's JSON schema has no such operation; the text form can hold every plan");
  }

  void writeTransfer(int at, OrderedJson& operations) {
    const Step& step = rank_.blocks[block_][at];
    if (step.sources.size() == 1) {
      writeCopies(at, step, operations);
    } else {
      writeReduction(at, step, operations);
    }
  }

  /// One source: an operation for each kind of destination, with a source for each destination.
  void writeCopies(int at, const Step& step, OrderedJson& operations) {
    const Operand& source = step.sources.front();
    if (source.access == Access::Switch) return writeSwitchReduction(at, step, operations);
    if (step.destinations.front().access == Access::Port) return writePort(at, operations);
    std::vector<Operand> rest = step.destinations;
    while (!rest.empty()) {
      const Entry kind = entryOf(rest.front());
      const TransferShape* shape = nullptr;
      for (const TransferShape& candidate : transferShapes) {
        const bool fits = candidate.pairs && !candidate.signals && candidate.firstSource == entryOf(source) &&
                          candidate.firstDestination == kind;
        if (fits && shape == nullptr) shape = &candidate;
      }
      if (shape == nullptr) fail(at, "a transfer between these forms");
      std::vector<Operand> same;
      const bool many = source.access == Access::Local && rest.front().access == Access::Memory;
      for (auto it = rest.begin(); it != rest.end() && same.size() < (many ? maxEntries : 1);) {
        const bool fits = entryOf(*it) == kind && it->access == rest.front().access;
        if (fits) same.push_back(*it);
        it = fits ? rest.erase(it) : it + 1;
      }
      operations.push_back(named(shape->name, step.operation, std::vector<Operand>(same.size(), source), same));
    }
  }

  void writeSwitchReduction(int at, const Step& step, OrderedJson& operations) {
    const Entry first = entryOf(step.destinations.front());
    if (step.destinations.size() != 1 || (first != Entry::SwitchPlain && first != Entry::Plain)) {
      fail(at, "a switch's reduction to several destinations");
    }
    operations.push_back(
        named(first == Entry::Plain ? "glre" : "glres", step.operation, step.sources, step.destinations));
  }

  /// Port transfers that follow each other, with the signals and the flush after them.
  void writePort(int at, OrderedJson& operations) {
    const auto& steps = rank_.blocks[block_];
    const auto isPort = [&](int i) {
      return i < countOf(steps) && steps[i].operation.kind == OperationKind::Transfer &&
             steps[i].destinations.front().access == Access::Port &&
             steps[i].operation.chunks == steps[at].operation.chunks &&
             steps[i].operation.shares == steps[at].operation.shares &&
             steps[i].destinations.front().form == Form::Plain;
    };
    const auto signalsOf = [&](int i, OperationKind kind, const std::vector<int>& channels) {
      return i < countOf(steps) && steps[i].operation.kind == kind && !steps[i].operation.relaxed &&
             steps[i].references == channels;
    };
    std::vector<Operand> sources, destinations;
    std::vector<int> channels;
    int last = at;
    for (int i = at; isPort(i) && sources.size() < maxEntries; ++i) {
      sources.push_back(steps[i].sources.front());
      destinations.push_back(steps[i].destinations.front());
      channels.push_back(destinations.back().channel);
      if (!signalsOf(i + 1, OperationKind::Signal, channels)) continue;
      last = i + 1;
      break;
    }
    if (last == at) {
      const bool packet = steps[at].destinations.front().form == Form::Packet;
      operations.push_back(
          named(packet ? "ppkt" : "put", steps[at].operation, steps[at].sources, steps[at].destinations));
      return;
    }
    const bool flushes = signalsOf(last + 1, OperationKind::Flush, channels);
    operations.push_back(named(flushes ? "pwsf" : "pws", steps[at].operation, sources, destinations));
    next_ = last + (flushes ? 2 : 1);
  }

  void writeReduction(int at, const Step& step, OrderedJson& operations) {
    const std::vector<Operand>& sources = step.sources;
    std::vector<Operand> destinations = step.destinations;
    // Packets that are kept come before those that are sent.
    std::stable_partition(destinations.begin(), destinations.end(),
                          [](const Operand& operand) { return operand.access == Access::Local; });
    const auto all = [](const std::vector<Operand>& list, std::size_t first, Entry kind) {
      return std::all_of(list.begin() + static_cast<std::ptrdiff_t>(std::min(first, list.size())), list.end(),
                         [&](const Operand& operand) { return entryOf(operand) == kind; });
    };
    for (const TransferShape& shape : transferShapes) {
      if (shape.pairs || shape.firstSource == Entry::SwitchPlain) continue;
      const bool both = shape.name == std::string_view("recspkt");
      const std::size_t fixed = both ? 2 : 1;
      const bool sends = shape.destinations != Entry::None;
      if (entryOf(sources.front()) != shape.firstSource || !all(sources, 1, shape.sources)) continue;
      if (entryOf(destinations.front()) != shape.firstDestination) continue;
      if (both && (destinations.size() < 2 || entryOf(destinations[1]) != Entry::Packet)) continue;
      if ((destinations.size() > fixed) != sends || !all(destinations, fixed, shape.destinations)) continue;
      if (std::any_of(destinations.begin(), destinations.end(),
                      [](const Operand& operand) { return operand.access == Access::Port; })) {
        continue;
      }
      if (sources.size() > maxEntries + 1 || destinations.size() > maxEntries + 1) {
        fail(at, textOf("a reduction of ", sources.size(), " sources to ", destinations.size(), " destinations"));
      }
      operations.push_back(named(shape.name, step.operation, sources, destinations));
      return;
    }
    fail(at, "a reduction with these sources and destinations");
  }

  const Draft& draft_;
  const DraftRank& rank_;
  int id_;
  int block_ = 0;
  int next_ = 0;
  std::vector<int> ids_;  ///< of each channel among those of its type
  std::vector<Remote> remotes_;
  std::map<int, std::vector<Access>> remoteAccess_;
  std::map<Access, std::vector<int>> channels_;      ///< of the block
  std::map<Access, std::vector<int>> blockRemotes_;  ///< of the block
};

/// The reference's reductions start from a local plain operand, add others of one kind, store the sum here, and send it
/// in the form of what was added. Others become such ones by copies, before and after. The order of the sum, and where
/// it is rounded, stay the same, so that ranks which had the same bits still have them.
class FittingReductions {
 public:
  FittingReductions(DraftRank& rank, int id) : rank_(rank), id_(id) {}

  void run() {
    for (auto& block : rank_.blocks) {
      steps_.clear();
      for (const Step& step : block) {
        if (step.operation.kind == OperationKind::Transfer && step.sources.size() > 1) {
          fit(step);
        } else {
          steps_.push_back(step);
        }
      }
      block = steps_;
    }
  }

 private:
  static bool isPlain(const Operand& operand) { return entryOf(operand) == Entry::Plain; }

  void fit(const Step& step) {
    const std::vector<Operand> sources = fittingSources(step);
    std::vector<Operand> destinations = step.destinations;
    const auto kept = std::find_if(destinations.begin(), destinations.end(), isPlain);
    if (kept != destinations.end()) {
      std::rotate(destinations.begin(), kept, kept + 1);
    } else {
      destinations.insert(destinations.begin(), newScratch(step));
    }
    const Operand sum = destinations.front();
    std::vector<Operand> with{sum}, after;
    const bool packets = entryOf(sources.back()) == Entry::Packet;
    bool hasLocalPackets = false;
    for (std::size_t d = 1; d < destinations.size(); ++d) {
      const Entry kind = entryOf(destinations[d]);
      const bool local = packets && kind == Entry::Packet && !hasLocalPackets;
      const bool remote = kind == (packets ? Entry::RemotePacket : Entry::RemotePlain);
      hasLocalPackets |= local;
      (local || (remote && destinations[d].access == Access::Memory) ? with : after).push_back(destinations[d]);
    }
    add(step, sources, with);
    if (after.empty()) return;
    sync(step);
    add(step, {sum}, after);
  }

  /// The sources in their order, the first one plain, and the others of one kind. The first two may change places: a
  /// sum of two has no order.
  std::vector<Operand> fittingSources(const Step& step) {
    std::vector<Operand> sources = step.sources;
    if (!isPlain(sources[0]) && isPlain(sources[1])) std::swap(sources[0], sources[1]);
    const bool ofOneKind = std::all_of(sources.begin() + 1, sources.end(),
                                       [&](const Operand& operand) { return entryOf(operand) == entryOf(sources[1]); });
    bool copies = false;
    for (std::size_t i = 0; i < (ofOneKind ? 1 : sources.size()); ++i) {
      if (isPlain(sources[i])) continue;
      const Operand plain = newScratch(step);
      add(step, {sources[i]}, {plain});
      sources[i] = plain;
      copies = true;
    }
    if (copies) sync(step);
    return sources;
  }

  Operand newScratch(const Step& step) {
    const int first = rank_.scratchChunks;
    rank_.scratchChunks += step.operation.chunks;
    return {.buffer = BufferKind::Scratch, .rank = static_cast<std::int16_t>(id_), .first = first};
  }
  void add(const Step& step, const std::vector<Operand>& sources, const std::vector<Operand>& destinations) {
    steps_.push_back({step.operation, sources, destinations});
  }
  void sync(const Step& step) { steps_.push_back({{.kind = OperationKind::Sync, .origin = step.operation.origin}}); }

  DraftRank& rank_;
  int id_;
  std::vector<Step> steps_;
};

bool usesPackets(const Plan& plan) {
  return std::any_of(plan.operands.begin(), plan.operands.end(),
                     [](const Operand& operand) { return operand.form == Form::Packet; });
}

}  // namespace

std::string toJson(const NamedPlan& plan) {
  Draft draft = draftOf(plan);
  for (int r = 0; r < plan.ranks; ++r) {
    // A copy to several places becomes several operations: what one reads, none before it may have written.
    for (auto& steps : draft.ranks[r].blocks) dropSelfCopies(draft, steps);
    FittingReductions(draft.ranks[r], r).run();
  }
  OrderedJson json{{"name", plan.name},
                   {"collective", keyOf(plan.collective)},
                   {"protocol", usesPackets(plan) ? "LL" : "Simple"},
                   {"inplace", plan.inPlace},
                   {"reuse_resources", plan.reuseResources},
                   {"gpus", OrderedJson::array()},
                   {"num_threads_per_block", plan.threadsPerBlock},
                   {"use_double_scratch_buffer", plan.doubleScratch},
                   {"buffer_alignment", plan.alignment},
                   {"min_message_size", plan.minBytes},
                   {"max_message_size", plan.maxBytes}};
  for (int r = 0; r < plan.ranks; ++r) json["gpus"].push_back(RankWriter(draft, r).write());
  if (plan.root != 0) json["root"] = plan.root;
  for (const DraftExpectation& expectation : draft.expectations) {
    OrderedJson contributions = OrderedJson::array();
    for (const auto& [rank, chunk] : expectation.contributions)
      contributions.push_back(OrderedJson::array({rank, chunk}));
    json["expectations"].push_back(
        {{"rank", expectation.rank}, {"chunk", expectation.chunk}, {"contributions", std::move(contributions)}});
  }
  return json.dump(1);
}

}  // namespace mscclpp::plan
