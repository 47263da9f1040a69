#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "draft.hpp"
#include "json_schema.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace {

using Json = nlohmann::json;

/// More are not read, of chunks or of anything else that is counted.
constexpr int mostChunks = 1 << 24;

/// A value of the text and where it stands in the plan.
class JsonNode {
 public:
  JsonNode(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... why) const {
    reject("plan: ", place_.empty() ? "" : place_ + ": ", why...);
  }
  template <class... Parts>
  [[noreturn]] void failKey(const char* key, const Parts&... why) const {
    fail("key \"", key, "\": ", why...);
  }

  bool has(const char* key) const { return json_->contains(key); }
  void allow(std::initializer_list<const char*> keys) const {
    if (!json_->is_object()) fail("expected an object");
    for (const auto& item : json_->items()) {
      if (std::none_of(keys.begin(), keys.end(), [&](const char* key) { return item.key() == key; })) {
        fail("key ", quoted(item.key()), ": unknown; known here are ", known(keys));
      }
    }
  }
  std::int64_t integer(const char* key, std::int64_t min, std::int64_t max) const {
    const Json& value = at(key);
    // Numbers above 2^63 are unsigned in this library.
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() &&
                        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (!fits || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max) {
      failKey(key, "expected an integer from ", min, " to ", max);
    }
    return value.get<std::int64_t>();
  }
  int count(const char* key, int min = 0) const { return static_cast<int>(integer(key, min, mostChunks)); }
  std::uint64_t bytes(const char* key, std::uint64_t otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_number_unsigned()) failKey(key, "expected a number of bytes");
    return at(key).get<std::uint64_t>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_boolean()) failKey(key, "expected true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) failKey(key, "expected a string");
    return at(key).get<std::string>();
  }
  std::vector<int> integers(const char* key, int max) const {
    if (!at(key).is_array()) failKey(key, "expected a list");
    std::vector<int> list;
    for (const Json& value : at(key)) {
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > max) {
        if (max < 0) failKey(key, "expected an empty list: there is nothing that it could name");
        failKey(key, "expected integers from 0 to ", max);
      }
      list.push_back(value.get<int>());
    }
    return list;
  }
  std::vector<std::string> texts(const char* key) const {
    if (!at(key).is_array()) failKey(key, "expected a list");
    std::vector<std::string> list;
    for (const Json& value : at(key)) {
      if (!value.is_string()) failKey(key, "expected strings");
      list.push_back(value.get<std::string>());
    }
    return list;
  }
  /// The entries of a list, whose places are this one's and `label` with their number, or, without one, this place.
  std::vector<JsonNode> list(const char* key, const std::string& label = "") const {
    if (!at(key).is_array()) failKey(key, "expected a list");
    std::vector<JsonNode> nodes;
    for (const Json& value : at(key)) {
      const std::string place =
          label.empty() ? textOf("key \"", key, "\", entry ", nodes.size()) : textOf(label, " ", nodes.size());
      nodes.emplace_back(value, place_.empty() ? place : place_ + ", " + place);
    }
    return nodes;
  }
  std::pair<int, int> pair() const {
    const auto isCount = [](const Json& value) {
      return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{mostChunks};
    };
    if (!json_->is_array() || json_->size() != 2 || !isCount((*json_)[0]) || !isCount((*json_)[1])) {
      fail("expected [rank, chunk]");
    }
    return {(*json_)[0].get<int>(), (*json_)[1].get<int>()};
  }
  JsonNode named(const std::string& name) const { return JsonNode(*json_, place_ + " (" + shown(name) + ")"); }
  JsonNode child(const char* key) const { return JsonNode(at(key), place_); }

 private:
  const Json& at(const char* key) const {
    if (!json_->is_object()) fail("expected an object");
    if (!json_->contains(key)) failKey(key, "missing");
    return (*json_)[key];
  }
  static std::string known(std::initializer_list<const char*> keys) {
    std::string list;
    for (const char* key : keys) list += (list.empty() ? "" : ", ") + std::string(key);
    return list;
  }

  const Json* json_;
  std::string place_;
};

/// A number as operands and operations have it.
std::int16_t shortOf(const JsonNode& node, const char* key, int value) {
  if (value > std::numeric_limits<std::int16_t>::max()) {
    node.failKey(key, value, " is more than ", std::numeric_limits<std::int16_t>::max());
  }
  return static_cast<std::int16_t>(value);
}

Access accessOf(const JsonNode& node, const char* key, const std::string& name) {
  for (const Access access : {Access::Memory, Access::Port, Access::Switch}) {
    if (name == keyOf(access)) return access;
  }
  node.failKey(key, quoted(name), " is no type of channel: memory, port or switch");
}
Access accessOf(const JsonNode& node, const char* key) {
  return accessOf(node, key, node.text(key));
}

BufferKind bufferOf(const JsonNode& node, const char* key) {
  const std::string name = node.text(key);
  for (const BufferKind buffer : {BufferKind::Input, BufferKind::Output, BufferKind::Scratch}) {
    if (name == keyOf(buffer)) return buffer;
  }
  node.failKey(key, quoted(name), " is no buffer: i, o or s");
}

struct RemoteBuffer {
  int rank;
  BufferKind buffer;
};

using ListPerAccess = std::map<Access, std::vector<int>>;

/// Reads one rank of a plan.
class RankReader {
 public:
  RankReader(const JsonNode& gpu, Draft& draft, int rank)
      : gpu_(gpu), draft_(draft), rank_(draft.ranks[rank]), id_(rank) {}

  void read() {
    readChannels();
    if (gpu_.has("semaphores")) {
      for (const JsonNode& semaphore : gpu_.list("semaphores")) {
        semaphore.allow({"init_value"});
        rank_.semaphores.push_back(semaphore.count("init_value"));
      }
    }
    int expected = 0;
    for (const JsonNode& block : gpu_.list("threadblocks", "block")) {
      block.allow({"id", "ops", "channels", "remote_buffer_refs"});
      if (block.count("id") != expected++) block.failKey("id", "blocks are numbered from 0, in order");
      readReferences(block);
      steps_ = &rank_.blocks.emplace_back();
      inLoop_ = false;
      for (const JsonNode& operation : block.list("ops", "operation")) readOperation(operation);
    }
  }

 private:
  void readChannels() {
    if (gpu_.has("channels")) {
      for (const JsonNode& entry : gpu_.list("channels")) {
        entry.allow({"channel_type", "connected_to", "buffer_type", "rank_groups"});
        const Access access = accessOf(entry, "channel_type");
        if (access == Access::Switch) {
          const BufferKind buffer = bufferOf(entry, "buffer_type");
          for (const JsonNode& group : entry.list("rank_groups")) {
            group.allow({"size", "ranks"});
            const auto members = group.integers("ranks", draft_.header.ranks - 1);
            if (group.has("size") && group.count("size") != countOf(members)) {
              group.failKey("size", "is not the number of \"ranks\"");
            }
            addChannel({access, id_, buffer, members});
          }
        } else {
          for (const int peer : entry.integers("connected_to", draft_.header.ranks - 1)) {
            if (peer == id_) entry.failKey("connected_to", "a rank has no channel to itself");
            addChannel({access, peer});
          }
        }
      }
    }
    if (gpu_.has("remote_buffers")) {
      for (const JsonNode& entry : gpu_.list("remote_buffers")) {
        entry.allow({"rank", "type", "access_channel_types"});
        if (entry.has("access_channel_types")) {
          const char* key = "access_channel_types";
          for (const std::string& type : entry.texts(key)) accessOf(entry, key, type);
        }
        remotes_.push_back(
            {static_cast<int>(entry.integer("rank", 0, draft_.header.ranks - 1)), bufferOf(entry, "type")});
      }
    }
  }
  void addChannel(DraftChannel channel) {
    channels_[channel.access].push_back(countOf(rank_.channels));
    rank_.channels.push_back(std::move(channel));
  }

  /// The channels and remote buffers that the operations of a block name by their place in these lists.
  void readReferences(const JsonNode& block) {
    blockChannels_.clear();
    blockRemotes_.clear();
    if (block.has("channels")) {
      for (const JsonNode& entry : block.list("channels")) {
        entry.allow({"channel_type", "channel_ids"});
        const Access access = accessOf(entry, "channel_type");
        for (const int id : entry.integers("channel_ids", countOf(channels_[access]) - 1)) {
          blockChannels_[access].push_back(channels_[access][id]);
        }
      }
    }
    if (block.has("remote_buffer_refs")) {
      for (const JsonNode& entry : block.list("remote_buffer_refs")) {
        entry.allow({"access_channel_type", "remote_buffer_ids"});
        const Access access = accessOf(entry, "access_channel_type");
        for (const int id : entry.integers("remote_buffer_ids", countOf(remotes_) - 1)) {
          blockRemotes_[access].push_back(id);
        }
      }
    }
  }

  void readOperation(const JsonNode& unnamed) {
    const std::string name = unnamed.text("name");
    const JsonNode node = unnamed.named(name);
    if (name == "pipeline") return readLoop(node);
    for (const SynchronisationName& entry : synchronisationNames) {
      if (name == entry.name) return readSynchronisation(node, entry);
    }
    for (const TransferShape& shape : transferShapes) {
      if (name == shape.name) return readTransfer(node, shape);
    }
    node.failKey("name", "unknown operation");
  }

  void readLoop(const JsonNode& node) {
    node.allow({"name", "iter_context", "ops"});
    if (inLoop_) node.fail("loops cannot be nested");
    const JsonNode context = node.child("iter_context");
    context.allow({"unit_size", "num_chunks"});
    const std::uint64_t unit = context.bytes("unit_size", 0);
    const auto chunks = static_cast<std::uint64_t>(context.count("num_chunks", 1));
    if (unit == 0 || unit > std::uint64_t{1} << 62) {
      context.failKey("unit_size", "expected a number of bytes from 1 to 2^62");
    }
    // A unit is spread over the chunks of the loop; ours are per chunk.
    steps_->push_back({{.kind = OperationKind::LoopBegin, .unitBytes = (unit + chunks - 1) / chunks}});
    inLoop_ = true;
    for (const JsonNode& operation : node.list("ops", "its operation")) readOperation(operation);
    inLoop_ = false;
    steps_->push_back({{.kind = OperationKind::LoopEnd}});
  }

  std::vector<int> channelsOf(const JsonNode& node, Access access) {
    const auto& known = blockChannels_[access];
    std::vector<int> channels;
    for (const int id : node.integers("channel_ids", 1 << 24)) {
      if (id >= countOf(known)) {
        node.failKey("channel_ids", id, " is not among the ", known.size(), " ", keyOf(access),
                     " channels of the block");
      }
      channels.push_back(known[id]);
    }
    if (channels.empty()) node.failKey("channel_ids", "names no channel");
    return channels;
  }

  void readSynchronisation(const JsonNode& node, const SynchronisationName& entry) {
    Step step{{.kind = entry.kind, .relaxed = entry.relaxed}};
    switch (entry.kind) {
      case OperationKind::Sync:
        node.allow({"name"});
        break;
      case OperationKind::Barrier:
        node.allow({"name", "barrier_id", "num_threadblocks"});
        step.operation.index = node.count("barrier_id");
        step.operation.blocks = node.count("num_threadblocks", 1);
        break;
      case OperationKind::Acquire:
      case OperationKind::Release:
        node.allow({"name", "semaphore_ids"});
        step.references = node.integers("semaphore_ids", countOf(rank_.semaphores) - 1);
        break;
      default: {
        node.allow({"name", "channel_ids", "channel_type"});
        const Access access = accessOf(node, "channel_type");
        if (access == Access::Switch || (entry.kind == OperationKind::Flush && access != Access::Port)) {
          node.failKey("channel_type", "not possible for this operation");
        }
        step.references = channelsOf(node, access);
      }
    }
    steps_->push_back(std::move(step));
  }

  struct Entries {
    std::vector<Operand> operands;
    std::vector<int> sizes;
  };

  Entries readEntries(const JsonNode& node, const char* key, bool isSource, const TransferShape& shape) {
    Entries entries;
    const auto nodes = node.list(key);
    if (nodes.empty()) node.failKey(key, "names no chunks");
    for (int i = 0; i < countOf(nodes); ++i) {
      const JsonNode& entry = nodes[i];
      entry.allow({"type", "buffer_id", "switch_channel_id", "index", "size"});
      Entry expected = isSource ? (i == 0 ? shape.firstSource : shape.sources)
                                : (i == 0 ? shape.firstDestination : shape.destinations);
      if (shape.name == std::string_view("recspkt") && !isSource && i == 1) expected = Entry::Packet;
      if (expected == Entry::None) node.failKey(key, "too many entries");
      Operand operand{.rank = shortOf(gpu_, "id", id_), .first = entry.count("index")};
      if (expected == Entry::Packet || expected == Entry::RemotePacket || expected == Entry::SwitchPacket) {
        operand.form = Form::Packet;
      }
      int chunks = 0;
      if (expected == Entry::Plain || expected == Entry::Packet) {
        operand.buffer = bufferOf(entry, "type");
        chunks = chunksOf(rank_, operand.buffer);
      } else if (expected == Entry::SwitchPlain || expected == Entry::SwitchPacket) {
        const auto& known = blockChannels_[Access::Switch];
        const int id = entry.count("switch_channel_id");
        if (id >= countOf(known)) entry.failKey("switch_channel_id", "not among the switch channels of the block");
        operand.access = Access::Switch;
        operand.channel = shortOf(entry, "switch_channel_id", known[id]);
        operand.buffer = rank_.channels[operand.channel].buffer;
        chunks = chunksOf(rank_, operand.buffer);
      } else {
        operand.access = accessOf(node, "channel_type");
        const auto& known = blockRemotes_[operand.access];
        const int id = entry.count("buffer_id");
        if (id >= countOf(known)) {
          entry.failKey("buffer_id", "not among the ", known.size(), " buffers that the block reaches by ",
                        keyOf(operand.access), " channels");
        }
        operand.rank = shortOf(entry, "buffer_id", remotes_[known[id]].rank);
        operand.buffer = remotes_[known[id]].buffer;
        chunks = chunksOf(draft_.ranks[operand.rank], operand.buffer);
      }
      entries.sizes.push_back(entry.count("size", 1));
      if (operand.first + entries.sizes.back() > chunks) {
        entry.failKey("index", "chunks ", operand.first, " to ", operand.first + entries.sizes.back() - 1,
                      " of buffer ", keyOf(operand.buffer), " of rank ", operand.rank, ", which has ", chunks);
      }
      entries.operands.push_back(operand);
    }
    return entries;
  }

  void readTransfer(const JsonNode& node, const TransferShape& shape) {
    node.allow({"name", "src_buff", "dst_buff", "channel_ids", "channel_type", "tbg_info", "reduce_op"});
    if (node.has("reduce_op") && node.text("reduce_op") != "sum") {
      node.failKey("reduce_op", "the operator is an argument of the call; write sum, or leave it out");
    }
    Operation operation{.kind = OperationKind::Transfer};
    if (node.has("tbg_info")) {
      const JsonNode group = node.child("tbg_info");
      group.allow({"tb_id", "tbg_size"});
      operation.shares = shortOf(group, "tbg_size", static_cast<int>(group.integer("tbg_size", 1, 1024)));
      operation.share = shortOf(group, "tb_id", static_cast<int>(group.integer("tb_id", 0, operation.shares - 1)));
    }
    Entries sources = readEntries(node, "src_buff", true, shape);
    Entries destinations = readEntries(node, "dst_buff", false, shape);
    const bool port = destinations.operands.back().access == Access::Port;
    std::vector<int> channels;
    if (port || shape.signals) {
      channels = channelsOf(node, accessOf(node, "channel_type"));
      const auto isRemote = [](const Operand& o) { return o.access == Access::Port || o.access == Access::Memory; };
      const auto remote = std::count_if(destinations.operands.begin(), destinations.operands.end(), isRemote);
      if (countOf(channels) != remote) {
        node.failKey("channel_ids", "expected one channel for each of the ", remote, " remote destinations");
      }
      auto channel = channels.begin();
      for (Operand& operand : destinations.operands) {
        if (!isRemote(operand)) continue;
        if (rank_.channels[*channel].peer != operand.rank) {
          node.failKey("channel_ids", "the channel leads to rank ", rank_.channels[*channel].peer,
                       ", the destination is at rank ", operand.rank);
        }
        if (port) operand.channel = shortOf(node, "channel_ids", *channel);
        ++channel;
      }
    } else if (node.has("channel_ids")) {  // not needed
      channelsOf(node, accessOf(node, "channel_type"));
    } else if (node.has("channel_type")) {
      accessOf(node, "channel_type");
    }
    const int size = sources.sizes.front();
    for (const int other : sources.sizes) {
      if (other != size) node.failKey("src_buff", "sizes of ", size, " and ", other, " chunks in one operation");
    }
    for (const int other : destinations.sizes) {
      if (other != size) node.failKey("dst_buff", "sizes of ", size, " and ", other, " chunks in one operation");
    }
    operation.chunks = size;
    // Port puts of packets transfer them as they lie.
    if (port && shape.name == std::string_view("ppkt")) {
      for (Operand& operand : sources.operands) operand.form = Form::Packet;
    }
    if (shape.pairs) {
      addPairs(node, operation, sources.operands, destinations.operands, port);
    } else {
      addReduction(operation, sources.operands, destinations.operands, port);
    }
    if (shape.signals) steps_->push_back({{.kind = OperationKind::Signal}, {}, {}, channels});
    if (shape.flushes) {
      if (!port) node.failKey("channel_type", "only writes through port channels are flushed");
      steps_->push_back({{.kind = OperationKind::Flush}, {}, {}, channels});
    }
  }

  void addPairs(const JsonNode& node, const Operation& operation, const std::vector<Operand>& sources,
                const std::vector<Operand>& destinations, bool port) {
    if (sources.size() != 1 && sources.size() != destinations.size()) {
      node.failKey("src_buff", "expected one source, or one for each of the ", destinations.size(), " destinations");
    }
    const std::size_t first = steps_->size();
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      const Operand& source = sources[sources.size() == 1 ? 0 : i];
      const bool same = !port && steps_->size() > first && steps_->back().sources.front() == source;
      if (same) {
        steps_->back().destinations.push_back(destinations[i]);
      } else {
        steps_->push_back({operation, {source}, {destinations[i]}});
      }
    }
  }

  void addReduction(const Operation& operation, const std::vector<Operand>& sources,
                    const std::vector<Operand>& destinations, bool port) {
    if (!port) {
      steps_->push_back({operation, sources, destinations});
      return;
    }
    // The proxy copies what the reduction has stored.
    steps_->push_back({operation, sources, {destinations.front()}});
    steps_->push_back({{.kind = OperationKind::Sync}});
    for (std::size_t i = 1; i < destinations.size(); ++i) {
      steps_->push_back({operation, {destinations.front()}, {destinations[i]}});
    }
  }

  const JsonNode& gpu_;
  Draft& draft_;
  DraftRank& rank_;
  int id_;
  ListPerAccess channels_, blockChannels_, blockRemotes_;
  std::vector<RemoteBuffer> remotes_;
  std::vector<Step>* steps_ = nullptr;
  bool inLoop_ = false;
};

Draft readHeader(const JsonNode& plan) {
  plan.allow({"name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block",
              "use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size", "root",
              "expectations"});
  const CollectiveName* collective = findCollective(plan.text("collective"));
  if (collective == nullptr) plan.failKey("collective", quoted(plan.text("collective")), " is unknown");
  if (plan.has("protocol") && plan.text("protocol") != "Simple" && plan.text("protocol") != "LL") {
    plan.failKey("protocol", "expected Simple or LL");
  }
  Draft draft;
  draft.name = plan.text("name");
  requireName(draft.name);
  Header& header = draft.header;
  header.collective = collective->kind;
  header.inPlace = plan.flag("inplace", false);
  header.reuseResources = plan.flag("reuse_resources", false);
  header.doubleScratch = plan.flag("use_double_scratch_buffer", false);
  if (plan.has("num_threads_per_block")) {
    header.threadsPerBlock = static_cast<int>(plan.integer("num_threads_per_block", 1, 1024));
  }
  if (plan.has("buffer_alignment")) header.alignment = static_cast<int>(plan.integer("buffer_alignment", 1, 1 << 20));
  if ((header.alignment & (header.alignment - 1)) != 0) plan.failKey("buffer_alignment", "expected a power of two");
  header.minBytes = plan.bytes("min_message_size", header.minBytes);
  header.maxBytes = plan.bytes("max_message_size", header.maxBytes);
  if (header.minBytes > header.maxBytes) plan.failKey("min_message_size", "is greater than max_message_size");
  return draft;
}

/// The buffers of all ranks, which the operations of any rank refer to.
void readSizes(const std::vector<JsonNode>& gpus, Draft& draft) {
  Header& header = draft.header;
  header.ranks = countOf(gpus);
  draft.ranks.resize(gpus.size());
  for (int r = 0; r < header.ranks; ++r) {
    gpus[r].allow({"id", "input_chunks", "output_chunks", "scratch_chunks", "channels", "remote_buffers", "semaphores",
                   "threadblocks"});
    if (gpus[r].count("id") != r) gpus[r].failKey("id", "ranks are numbered from 0, in order");
  }
  for (int r = 0; r < header.ranks; ++r) {
    const JsonNode& gpu = gpus[r];
    DraftRank& rank = draft.ranks[r];
    rank = {gpu.count("input_chunks"), gpu.count("output_chunks"), gpu.count("scratch_chunks")};
    if (header.collective == CollectiveKind::Custom) continue;
    // In place only one of the two need be given, and ranks without data have none.
    Header once = header;
    once.chunksPerPart = 1;
    const int inputs = inputChunksOf(once, r), outputs = outputChunksOf(once, r);
    int chunks = 0;
    if (rank.inputChunks > 0 && inputs > 0) {
      chunks = rank.inputChunks / inputs;
    } else if (outputs > 0) {
      chunks = rank.outputChunks / outputs;
    } else {
      chunks = header.chunksPerPart;  // as rank 0 has
    }
    if (chunks == 0) gpu.failKey("input_chunks", "the collective has at least one chunk");
    if (r == 0) header.chunksPerPart = chunks;
    const auto check = [&](const char* key, int& given, int parts) {
      const std::int64_t expected = std::int64_t{header.chunksPerPart} * parts;
      if (expected > mostChunks) gpu.failKey(key, expected, " chunks are more than ", mostChunks);
      if (given == 0 && header.inPlace) given = static_cast<int>(expected);
      if (given != expected) {
        gpu.failKey(key, "expected ", expected, " chunks, for ", header.chunksPerPart, " chunks of each part");
      }
    };
    check("input_chunks", rank.inputChunks, inputs);
    check("output_chunks", rank.outputChunks, outputs);
  }
}

void readExpectations(const JsonNode& plan, Draft& draft) {
  for (const JsonNode& entry : plan.list("expectations")) {
    entry.allow({"rank", "chunk", "contributions"});
    DraftExpectation expectation{static_cast<int>(entry.integer("rank", 0, draft.header.ranks - 1))};
    expectation.chunk = static_cast<int>(entry.integer("chunk", 0, draft.ranks[expectation.rank].outputChunks - 1));
    for (const JsonNode& pair : entry.list("contributions")) {
      const auto [rank, chunk] = pair.pair();
      if (rank < 0 || rank >= draft.header.ranks) pair.fail("rank ", rank, " does not exist");
      if (chunk < 0 || chunk >= draft.ranks[rank].inputChunks) pair.fail("there is no input chunk ", chunk);
      expectation.contributions.push_back({rank, chunk});
    }
    draft.expectations.push_back(std::move(expectation));
  }
}

}  // namespace

NamedPlan fromJson(std::string_view text) {
  Json json;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto requireNew = [&](int, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      reject("plan: key ", quoted(value.get<std::string>()), " stands twice in one object");
    }
    return true;
  };
  try {
    json = Json::parse(text, requireNew);
  } catch (const Json::exception& error) {
    reject("plan: this is not JSON: ", mscclpp::detail::printableText(error.what()));
  }
  const JsonNode plan(json, "");
  Draft draft = readHeader(plan);
  const std::vector<JsonNode> gpus = plan.list("gpus", "rank");
  if (gpus.empty()) plan.failKey("gpus", "names no rank");
  if (countOf(gpus) > maxPlanRanks) plan.failKey("gpus", "names ", gpus.size(), " ranks, at most ", maxPlanRanks);
  if (plan.has("root")) draft.header.root = static_cast<int>(plan.integer("root", 0, countOf(gpus) - 1));
  readSizes(gpus, draft);
  for (int r = 0; r < draft.header.ranks; ++r) RankReader(gpus[r], draft, r).read();
  if (plan.has("expectations")) readExpectations(plan, draft);
  return placed(lower(draft));
}

}  // namespace mscclpp::plan
