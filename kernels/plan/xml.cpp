#include "mscclpp/kernels/plan/xml.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "instruction_schedule.hpp"
#include "instructions.hpp"
#include "json_schema.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/simulate.hpp"

namespace mscclpp::plan {

namespace {

struct AlgorithmName {
  const char* name;
  CollectiveKind kind;
};
constexpr AlgorithmName algorithmNames[] = {
    {"allreduce", CollectiveKind::AllReduce}, {"allgather", CollectiveKind::AllGather},
    {"reduce", CollectiveKind::Reduce},       {"broadcast", CollectiveKind::Broadcast},
    {"gather", CollectiveKind::Gather},       {"scatter", CollectiveKind::Scatter},
    {"alltoall", CollectiveKind::AllToAll},   {"reduce_scatter", CollectiveKind::ReduceScatter},
    {"custom", CollectiveKind::Custom}};

bool isRooted(CollectiveKind kind) {
  return kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce || kind == CollectiveKind::Gather ||
         kind == CollectiveKind::Scatter;
}

const char* algorithmName(CollectiveKind kind) {
  for (const AlgorithmName& entry : algorithmNames) {
    if (entry.kind == kind) return entry.name;
  }
  return "custom";
}

/// An element of the text, and where it is.
class Element {
 public:
  Element(pugi::xml_node node, std::string place) : node_(node), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... why) const {
    reject("MSCCL algorithm: ", place_, place_.empty() ? "" : ": ", why...);
  }
  bool has(const char* name) const { return !node_.attribute(name).empty(); }
  std::string text(const char* name) const {
    if (!has(name)) fail("attribute \"", name, "\": missing");
    return node_.attribute(name).value();
  }
  template <class T = int>
  T integer(const char* name, T min, T max) const {
    const std::string value = text(name);
    T number = 0;
    const char* const last = value.data() + value.size();
    const auto [end, error] = std::from_chars(value.data(), last, number);
    if (error != std::errc() || end != last || number < min || number > max) {
      fail("attribute \"", name, "\": ", quoted(value), "; expected an integer from ", min, " to ", max);
    }
    return number;
  }
  std::uint64_t bytes(const char* name, std::uint64_t otherwise) const {
    return has(name) ? integer<std::uint64_t>(name, 0, std::numeric_limits<std::uint64_t>::max()) : otherwise;
  }
  /// Of an attribute that is not needed.
  void requireInteger(const char* name, int min, int max) const {
    if (has(name)) integer(name, min, max);
  }
  std::vector<Element> children(const char* name, const char* label) const {
    std::vector<Element> list;
    for (const pugi::xml_node child : node_.children()) {
      if (child.type() != pugi::node_element) continue;
      if (std::string_view(child.name()) != name) fail("element ", quoted(child.name()), ": expected <", name, ">");
      list.emplace_back(child, textOf(place_, place_.empty() ? "" : ", ", label, " ", list.size()));
    }
    return list;
  }

 private:
  pugi::xml_node node_;
  std::string place_;
};

constexpr int maxCount = 1 << 24;

class XmlReader {
 public:
  explicit XmlReader(const Element& algo) : algo_(algo) {}

  InstructionProgram read() {
    Header& header = program_.header;
    program_.name = algo_.text("name");
    requireName(program_.name);
    header.ranks = algo_.integer("ngpus", 1, int{std::numeric_limits<std::int16_t>::max()});
    algo_.requireInteger("nchannels", 0, maxCount);
    header.inPlace = algo_.has("inplace") && algo_.integer("inplace", 0, 1) == 1;
    if (algo_.has("nthreads")) header.threadsPerBlock = algo_.integer("nthreads", 1, 1024);
    header.minBytes = algo_.bytes("minBytes", header.minBytes);
    header.maxBytes = algo_.bytes("maxBytes", header.maxBytes);
    if (header.minBytes > header.maxBytes) algo_.fail("attribute \"minBytes\": is greater than \"maxBytes\"");
    const std::string protocol = algo_.has("proto") ? algo_.text("proto") : "Simple";
    if (protocol != "Simple" && protocol != "LL" && protocol != "LL128") {
      algo_.fail("attribute \"proto\": ", quoted(protocol), "; expected Simple, LL or LL128");
    }
    program_.packets = protocol != "Simple";
    readCollective();
    const auto gpus = algo_.children("gpu", "gpu");
    if (countOf(gpus) != header.ranks) algo_.fail(gpus.size(), " gpus; \"ngpus\" says ", header.ranks);
    for (int r = 0; r < header.ranks; ++r) {
      if (gpus[r].integer("id", 0, header.ranks - 1) != r) gpus[r].fail("attribute \"id\": gpus are in order, from 0");
      InstructionRank rank{inputChunksOf(header, r), outputChunksOf(header, r)};
      rank.scratchChunks = gpus[r].has("s_chunks") ? gpus[r].integer("s_chunks", 0, maxCount) : 0;
      if (header.collective == CollectiveKind::Custom) {
        rank.inputChunks = gpus[r].integer("i_chunks", 0, maxCount);
        rank.outputChunks = gpus[r].integer("o_chunks", 0, maxCount);
      } else {
        requireChunks(gpus[r], "i_chunks", rank.inputChunks);
        requireChunks(gpus[r], "o_chunks", rank.outputChunks);
      }
      program_.ranks.push_back(std::move(rank));
      readBlocks(gpus[r], r);
    }
    return std::move(program_);
  }

 private:
  /// The sizes of buffers follow from the collective; in place MSCCL gives the whole buffer, or none.
  void requireChunks(const Element& gpu, const char* name, int expected) const {
    if (!gpu.has(name)) return;
    const int given = gpu.integer(name, 0, maxCount);
    if (given == 0 || given == expected || program_.header.inPlace || isRooted(program_.header.collective)) return;
    gpu.fail("attribute \"", name, "\": ", given, "; by \"nchunksperloop\" the rank has ", expected, " chunks");
  }
  void readCollective() {
    Header& header = program_.header;
    const std::string name = algo_.text("coll");
    const auto* found = std::find_if(std::begin(algorithmNames), std::end(algorithmNames),
                                     [&](const AlgorithmName& entry) { return name == entry.name; });
    if (found == std::end(algorithmNames)) algo_.fail("attribute \"coll\": ", quoted(name), " is unknown");
    header.collective = found->kind;
    if (found->kind == CollectiveKind::Custom) return;
    if (isRooted(found->kind) && algo_.has("root")) header.root = algo_.integer("root", 0, header.ranks - 1);
    const bool parts = found->kind == CollectiveKind::AllGather || found->kind == CollectiveKind::AllToAll ||
                       found->kind == CollectiveKind::ReduceScatter || found->kind == CollectiveKind::Gather ||
                       found->kind == CollectiveKind::Scatter;
    const int chunks = algo_.integer("nchunksperloop", 1, maxCount);
    if (parts && chunks % header.ranks != 0) {
      algo_.fail("attribute \"nchunksperloop\": ", chunks, " chunks cannot be divided among ", header.ranks, " ranks");
    }
    header.chunksPerPart = parts ? chunks / header.ranks : chunks;
  }

  void readBlocks(const Element& gpu, int rank) {
    const int ranks = program_.header.ranks;
    const auto blocks = gpu.children("tb", "block");
    for (int b = 0; b < countOf(blocks); ++b) {
      const Element& tb = blocks[b];
      if (tb.integer("id", 0, maxCount) != b) tb.fail("attribute \"id\": blocks are in order, from 0");
      InstructionBlock block{tb.integer("send", -1, ranks - 1), tb.integer("recv", -1, ranks - 1),
                             std::max(tb.integer("chan", -1, maxCount), 0)};
      const auto steps = tb.children("step", "step");
      for (int s = 0; s < countOf(steps); ++s) {
        if (steps[s].integer("s", 0, maxCount) != s) steps[s].fail("attribute \"s\": steps are in order, from 0");
        block.steps.push_back(readStep(steps[s], rank));
      }
      program_.ranks[rank].blocks.push_back(std::move(block));
    }
  }

  ChunkPlace readPlace(const Element& step, const char* buffer, const char* offset, int count, int rank) const {
    const std::string name = step.text(buffer);
    for (const BufferKind kind : {BufferKind::Input, BufferKind::Output, BufferKind::Scratch}) {
      if (name != keyOf(kind)) continue;
      const InstructionRank& of = program_.ranks[rank];
      const int chunks = kind == BufferKind::Input    ? of.inputChunks
                         : kind == BufferKind::Output ? of.outputChunks
                                                      : of.scratchChunks;
      const int index = step.integer(offset, 0, maxCount);
      if (index + count > chunks) {
        step.fail("attribute \"", offset, "\": chunks ", index, " to ", index + count - 1, " of buffer ", name,
                  ", which has ", chunks);
      }
      return {kind, index};
    }
    step.fail("attribute \"", buffer, "\": ", quoted(name), " is no buffer: i, o or s");
  }

  Instruction readStep(const Element& step, int rank) const {
    using K = InstructionKind;
    const std::string name = step.text("type");
    const auto* found = std::find(std::begin(instructionNames), std::end(instructionNames), name);
    if (found == std::end(instructionNames)) step.fail("attribute \"type\": ", quoted(name), " is unknown");
    step.requireInteger("hasdep", 0, 1);
    Instruction instruction;
    instruction.kind = static_cast<K>(found - std::begin(instructionNames));
    const K kind = instruction.kind;
    if (kind != K::Nop) {
      instruction.count = step.integer("cnt", 1, maxCount);
      const bool readsSource = kind == K::Send || kind == K::Copy || kind == K::Reduce || reduces(kind);
      const bool writes = kind != K::Send && kind != K::ReceiveReduceSend;
      if (readsSource) instruction.source = readPlace(step, "srcbuf", "srcoff", instruction.count, rank);
      if (writes) instruction.destination = readPlace(step, "dstbuf", "dstoff", instruction.count, rank);
      if (!readsSource) instruction.source = instruction.destination;
      if (!writes) instruction.destination = instruction.source;
    }
    if (step.has("depid") && step.integer("depid", -1, maxCount) >= 0) {
      instruction.dependences.emplace_back(step.integer("depid", 0, maxCount), step.integer("deps", 0, maxCount));
    }
    return instruction;
  }

  const Element& algo_;
  InstructionProgram program_;
};

}  // namespace

NamedPlan fromXml(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(text.data(), text.size());
  if (!result) {
    reject("MSCCL algorithm: this is not XML: ", result.description(), " at character ", result.offset);
  }
  const pugi::xml_node root = document.child("algo");
  if (root.empty()) reject("MSCCL algorithm: there is no element <algo>");
  const Element algo(root, "");
  return compileInstructions(XmlReader(algo).read());
}

namespace {

/// The copies and reductions that an operation of a plan consists of.
class TransferTrace {
 public:
  TransferTrace(const Draft& draft, InstructionProgram& program) : draft_(draft), program_(program) {}

  const std::vector<TracedOperation>& operations() const { return operations_; }

  void add(int rank, int block, int index) {
    const Step& step = draft_.ranks[rank].blocks[block][index];
    if (step.operation.kind != OperationKind::Transfer) return;
    const auto fail = [&](const char* what) {
      reject("plan: ", placeOf(draft_, rank, block, index), ": MSCCL's XML has no ", what);
    };
    if (step.operation.shares > 1) fail("groups of thread blocks");
    for (const auto* list : {&step.sources, &step.destinations}) {
      for (const Operand& operand : *list) {
        if (operand.access == Access::Switch) fail("switch channels");
      }
    }
    count_ = step.operation.chunks;
    origin_ = step.operation.origin;
    if (step.sources.size() == 1) {
      for (const Operand& destination : step.destinations) {
        if (!isSame(step.sources.front(), destination)) move(false, step.sources.front(), destination);
      }
      return;
    }
    // Added up where the rank stores the sum, or in scratch if it only sends it.
    Operand sum{.buffer = BufferKind::Scratch, .rank = static_cast<std::int16_t>(rank)};
    const auto local = std::find_if(step.destinations.begin(), step.destinations.end(),
                                    [](const Operand& operand) { return operand.access == Access::Local; });
    if (local != step.destinations.end()) {
      sum = *local;
    } else {
      sum.first = program_.ranks[rank].scratchChunks;
      program_.ranks[rank].scratchChunks += count_;
    }
    auto start = std::find_if(step.sources.begin(), step.sources.end(),
                              [&](const Operand& operand) { return isSame(operand, sum); });
    if (start == step.sources.end()) {
      start = step.sources.begin();
      move(false, *start, sum);
    }
    for (auto source = step.sources.begin(); source != step.sources.end(); ++source) {
      if (source != start) move(true, *source, sum);
    }
    for (const Operand& destination : step.destinations) {
      if (!isSame(destination, sum)) move(false, sum, destination);
    }
  }

 private:
  bool isSame(const Operand& a, const Operand& b) const {
    const Operand x = canonical(draft_, a), y = canonical(draft_, b);
    return x.rank == y.rank && x.buffer == y.buffer && x.first == y.first;
  }
  void move(bool reduces, const Operand& source, const Operand& destination) {
    operations_.push_back({reduces,
                           {source.rank, {source.buffer, source.first}},
                           {destination.rank, {destination.buffer, destination.first}},
                           count_,
                           -1,
                           -1,
                           -1,
                           origin_});
  }

  const Draft& draft_;
  InstructionProgram& program_;
  std::vector<TracedOperation> operations_;
  int count_ = 1;
  int origin_ = -1;
};

}  // namespace

std::string toXml(const NamedPlan& plan) {
  const Draft draft = draftOf(plan);
  InstructionProgram program{.header = plan, .name = plan.name, .origins = plan.origins};
  program.packets = std::any_of(plan.operands.begin(), plan.operands.end(),
                                [](const Operand& operand) { return operand.form == Form::Packet; });
  for (const DraftRank& rank : draft.ranks) {
    program.ranks.push_back({rank.inputChunks, rank.outputChunks, rank.scratchChunks});
  }
  TransferTrace trace(draft, program);
  std::set<std::tuple<int, int, int>> traced;  // of loops the first iteration
  for (const SimulatedOperation& at : simulate(plan, 1).operations) {
    if (traced.insert({at.rank, at.block, at.operation}).second) trace.add(at.rank, at.block, at.operation);
  }
  schedule(program, draft, trace.operations(), {});
  return writeXml(program);
}

std::string writeXml(const InstructionProgram& program) {
  pugi::xml_document document;
  pugi::xml_node algo = document.append_child("algo");
  int channels = 1, chunks = 0;
  for (const InstructionRank& rank : program.ranks) {
    chunks = std::max({chunks, rank.inputChunks, rank.outputChunks});
    for (const InstructionBlock& block : rank.blocks) channels = std::max(channels, block.channel + 1);
  }
  const Header& header = program.header;
  const auto set = [](pugi::xml_node node, const char* name, const auto& value) {
    node.append_attribute(name).set_value(value);
  };
  set(algo, "name", program.name.c_str());
  set(algo, "proto", program.packets ? "LL" : "Simple");
  set(algo, "nchannels", channels);
  set(algo, "nchunksperloop", chunks);
  set(algo, "ngpus", header.ranks);
  set(algo, "coll", algorithmName(header.collective));
  // MSCCL's readers look attributes up by name; they have no root.
  if (header.root != 0) set(algo, "root", header.root);
  set(algo, "inplace", header.inPlace ? 1 : 0);
  set(algo, "nthreads", header.threadsPerBlock);
  const Header defaults;
  if (header.minBytes != defaults.minBytes) set(algo, "minBytes", header.minBytes);
  if (header.maxBytes != defaults.maxBytes) set(algo, "maxBytes", header.maxBytes);
  for (int r = 0; r < countOf(program.ranks); ++r) {
    const InstructionRank& rank = program.ranks[r];
    pugi::xml_node gpu = algo.append_child("gpu");
    set(gpu, "id", r);
    set(gpu, "i_chunks", rank.inputChunks);
    set(gpu, "o_chunks", rank.outputChunks);
    set(gpu, "s_chunks", rank.scratchChunks);
    // A step names one dependence; further ones are those of nops before it.
    std::vector<std::vector<int>> numbers(rank.blocks.size());
    std::set<std::pair<int, int>> awaited;
    for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
      int next = 0;
      for (const Instruction& step : rank.blocks[b].steps) {
        next += std::max(countOf(step.dependences), 1);
        numbers[b].push_back(next - 1);
        awaited.insert(step.dependences.begin(), step.dependences.end());
      }
    }
    for (int b = 0; b < countOf(rank.blocks); ++b) {
      const InstructionBlock& block = rank.blocks[b];
      pugi::xml_node tb = gpu.append_child("tb");
      set(tb, "id", b);
      set(tb, "send", block.send);
      set(tb, "recv", block.receive);
      set(tb, "chan", block.channel);
      int number = 0;
      for (int s = 0; s < countOf(block.steps); ++s) {
        const Instruction& step = block.steps[s];
        for (int d = 0; d < std::max(countOf(step.dependences), 1); ++d) {
          const bool last = d + 1 >= countOf(step.dependences);
          pugi::xml_node node = tb.append_child("step");
          set(node, "s", number++);
          set(node, "type", last ? instructionNames[static_cast<int>(step.kind)] : "nop");
          const bool hasData = last && step.kind != InstructionKind::Nop;
          set(node, "srcbuf", hasData ? keyOf(step.source.buffer) : "i");
          set(node, "srcoff", hasData ? step.source.index : -1);
          set(node, "dstbuf", hasData ? keyOf(step.destination.buffer) : "o");
          set(node, "dstoff", hasData ? step.destination.index : -1);
          set(node, "cnt", hasData ? step.count : 0);
          const bool depends = !step.dependences.empty();
          set(node, "depid", depends ? step.dependences[d].first : -1);
          set(node, "deps", depends ? numbers[step.dependences[d].first][step.dependences[d].second] : -1);
          set(node, "hasdep", last && awaited.contains({b, s}) ? 1 : 0);
        }
      }
    }
  }
  std::ostringstream text;
  document.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
  return text.str();
}

}  // namespace mscclpp::plan
