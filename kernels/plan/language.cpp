#include "mscclpp/kernels/plan/language.hpp"

#include <algorithm>
#include <set>

#include "draft.hpp"
#include "json_schema.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/structure.hpp"
#include "passes.hpp"

namespace mscclpp::language {

using plan::Access;
using plan::countOf;
using plan::Draft;
using plan::DraftRank;
using plan::Form;
using plan::Operand;
using plan::Operation;
using plan::OperationKind;
using plan::Step;

namespace {

template <class... Parts>
[[noreturn]] void fail(const Origin& origin, const Parts&... why) {
  plan::reject(origin.text, origin.text.empty() ? "" : ": ", why...);
}

plan::Header headerOf(const AlgoSpec& spec, const Origin& origin) {
  const Collective& collective = spec.collective;
  if (const std::string why = plan::refusesProgram(collective, spec.instances); !why.empty()) fail(origin, why);
  if (spec.worldSize != 0 && spec.worldSize != collective.ranks) {
    fail(origin, "the program has ", spec.worldSize, " ranks, its collective ", collective.ranks);
  }
  if (spec.protocol != "Simple" && spec.protocol != "LL") {
    fail(origin, "protocol is \"", spec.protocol, "\"; it is Simple or LL");
  }
  if (spec.numThreadsPerBlock < 1 || spec.numThreadsPerBlock > 1024) {
    fail(origin, "num_threads_per_block is ", spec.numThreadsPerBlock, "; it is from 1 to 1024");
  }
  if (spec.bufferAlignment < 1 || (spec.bufferAlignment & (spec.bufferAlignment - 1)) != 0) {
    fail(origin, "buffer_alignment is ", spec.bufferAlignment, "; it is a power of two");
  }
  if (spec.minMessageSize > spec.maxMessageSize) fail(origin, "min_message_size is greater than max_message_size");
  return {.collective = collective.kind,
          .ranks = collective.ranks,
          .root = collective.root,
          .chunksPerPart = collective.chunksPerPart(),
          .inPlace = collective.inPlace || spec.inPlace,
          .threadsPerBlock = spec.numThreadsPerBlock,
          .alignment = spec.bufferAlignment,
          .minBytes = spec.minMessageSize,
          .maxBytes = spec.maxMessageSize,
          .doubleScratch = spec.useDoubleScratchBuffer,
          .reuseResources = spec.reuseResources};
}

}  // namespace

/// What a program has recorded.
class ProgramState {
 public:
  ProgramState(const AlgoSpec& spec, const Origin& origin)
      : spec(spec), draft(makeDraft(headerOf(spec, origin), spec.name)), channelOrigins(draft.ranks.size()) {
    if (spec.collective.kind != plan::CollectiveKind::Custom) return;
    for (DraftRank& rank : draft.ranks) {
      rank.inputChunks = spec.collective.inputChunks;
      rank.outputChunks = spec.collective.outputChunks;
    }
  }

  void requireRank(int rank, const Origin& origin) const {
    if (rank < 0 || rank >= draft.header.ranks) {
      fail(origin, "rank ", rank, " does not exist: the program has ", draft.header.ranks);
    }
  }

  int addChannel(int rank, plan::DraftChannel channel, const Origin& origin) {
    draft.ranks[rank].channels.push_back(std::move(channel));
    channelOrigins[rank].push_back(origin.text);
    return countOf(draft.ranks[rank].channels) - 1;
  }

  /// Appends a step to a block, in the loop that is open.
  void record(int rank, int block, Step step, SyncType sync, const Origin& origin) {
    if (block < 0 || block >= plan::maxRankBlocks) {
      fail(origin, "thread block ", block, ": blocks are numbered from 0 to ", plan::maxRankBlocks - 1,
           ": all are resident on a GPU at once");
    }
    if (const std::string why = plan::refusesOperations(++recorded); !why.empty()) fail(origin, why);
    auto& blocks = draft.ranks[rank].blocks;
    if (countOf(blocks) <= block) blocks.resize(block + 1);
    auto& steps = blocks[block];
    const int line = draft.origin(origin.text);
    const auto append = [&](Step added) {
      added.operation.origin = line;
      steps.push_back(std::move(added));
    };
    if (loopUnit > 0 && inLoop.insert({rank, block}).second) {
      append({{.kind = OperationKind::LoopBegin, .unitBytes = loopUnit}});
    }
    if (sync == SyncType::Before || sync == SyncType::Both) append({{.kind = OperationKind::Sync}});
    append(std::move(step));
    if (sync == SyncType::After || sync == SyncType::Both) append({{.kind = OperationKind::Sync}});
  }

  void transfer(int rank, const Blocks& blocks, const std::vector<Operand>& sources,
                const std::vector<Operand>& destinations, int chunks, const Origin& origin) {
    const int shares = countOf(blocks.list());
    if (shares == 0) fail(origin, "the group of thread blocks is empty");
    for (int share = 0; share < shares; ++share) {
      record(rank, blocks.list()[share],
             {{.kind = OperationKind::Transfer,
               .chunks = chunks,
               .share = static_cast<std::int16_t>(share),
               .shares = static_cast<std::int16_t>(shares)},
              sources,
              destinations},
             SyncType::None, origin);
    }
  }

  /// A chunk as an operand of an operation of `rank`.
  Operand operand(const char* operation, const Chunk& chunk, int owner, int size, const Origin& origin,
                  Form form = Form::Plain, Access access = Access::Local, int channel = -1) const {
    if (chunk.rank != owner) {
      fail(origin, operation, ": the chunk is rank ", chunk.rank, "'s; expected one of rank ", owner);
    }
    if (chunk.size != size) fail(origin, operation, ": chunks of sizes ", size, " and ", chunk.size);
    const int chunks = plan::chunksOf(draft.ranks[owner], chunk.buffer);
    if (chunk.index < 0 || chunk.size < 1 || chunk.index + chunk.size > chunks) {
      fail(origin, operation, ": chunks [", chunk.index, ", ", chunk.index + chunk.size, ") of a buffer that has ",
           chunks);
    }
    if (form == Form::Packet && chunk.buffer != BufferType::Scratch) {
      fail(origin, operation, ": packets lie in scratch (Buffer(rank, size)) only");
    }
    return {chunk.buffer,
            form,
            access,
            static_cast<std::int16_t>(owner),
            static_cast<std::int16_t>(access == Access::Port ? channel : -1),
            chunk.index};
  }

  AlgoSpec spec;
  Draft draft;
  std::vector<std::vector<std::string>> channelOrigins;
  std::map<std::pair<int, std::vector<int>>, int> barriers;  ///< the id of a rank's barrier of these blocks
  int recorded = 0;                                          ///< operations
  std::uint64_t loopUnit = 0;
  std::set<std::pair<int, int>> inLoop;  ///< (rank, block) that have operations in the open loop
};

CollectiveProgram::CollectiveProgram(const AlgoSpec& spec, Origin origin)
    : state_(std::make_unique<ProgramState>(spec, origin)) {}
CollectiveProgram::~CollectiveProgram() = default;
CollectiveProgram::CollectiveProgram(CollectiveProgram&&) noexcept = default;
CollectiveProgram& CollectiveProgram::operator=(CollectiveProgram&&) noexcept = default;

const AlgoSpec& CollectiveProgram::spec() const {
  return state_->spec;
}

plan::NamedPlan CollectiveProgram::compile() const {
  const AlgoSpec& spec = state_->spec;
  if (state_->loopUnit > 0) plan::reject("program ", spec.name, ": a LoopIterationContext is still open");
  const auto isEmpty = [](const DraftRank& rank) { return rank.blocks.empty(); };
  Draft draft = state_->draft;
  if (std::all_of(draft.ranks.begin(), draft.ranks.end(), isEmpty)) {
    plan::reject("program ", spec.name, ": it has no operations");
  }
  requireMatchedSignals(draft, state_->channelOrigins);
  for (DraftRank& rank : draft.ranks) {
    for (auto& steps : rank.blocks) {
      if (spec.instrFusion) steps = fuse(draft, steps);
      if (spec.autoSync) steps = insertSyncs(draft, steps, plan::SyncScope::Data);
    }
  }
  if (spec.replicationPolicy == ReplicationPolicy::Interleaved) {
    draft = replicate(draft, spec.instances, fittingReplication(draft));
  }
  completeChannels(draft);
  plan::NamedPlan plan = plan::placed(lower(draft));
  const auto isRelaxed = [](const Operation& operation) { return operation.relaxed; };
  if (std::any_of(plan.operations.begin(), plan.operations.end(), isRelaxed) && !plan::isRight(plan)) {
    for (Operation& operation : plan.operations) operation.relaxed = false;
  }
  return plan;
}

std::string CollectiveProgram::toJson() const {
  return plan::toJson(compile());
}

Buffer::Buffer(CollectiveProgram& program, int rank, int size, Origin origin)
    : rank_(rank), type_(BufferType::Scratch), offset_(0), size_(size) {
  program.state().requireRank(rank, origin);
  if (size < 1) fail(origin, "a buffer of ", size, " chunks");
  int& chunks = program.state().draft.ranks[rank].scratchChunks;
  offset_ = chunks;
  chunks += size;
}

Chunk Buffer::slice(int begin, int end, Origin origin) const {
  if (begin < 0 || end > size_ || begin >= end) {
    fail(origin, "chunks [", begin, ", ", end, ") of a buffer of ", size_,
         " chunks: a slice has one or more of its chunks 0 to ", size_ - 1);
  }
  return {rank_, type_, offset_ + begin, end - begin};
}

Rank::Rank(CollectiveProgram& program, int rank, Origin origin) : program_(&program), rank_(rank) {
  program.state().requireRank(rank, origin);
}

Buffer Rank::getInputBuffer() const {
  return {rank_, BufferType::Input, 0, program_->state().draft.ranks[rank_].inputChunks};
}

Buffer Rank::getOutputBuffer() const {
  return {rank_, BufferType::Output, 0, program_->state().draft.ranks[rank_].outputChunks};
}

void Rank::copy(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {state.operand("copy", src, rank_, src.size, origin)},
                 {state.operand("copy", dst, rank_, src.size, origin)}, src.size, origin);
}

void Rank::copyPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {state.operand("copy_packets", src, rank_, src.size, origin)},
                 {state.operand("copy_packets", dst, rank_, src.size, origin, Form::Packet)}, src.size, origin);
}

void Rank::unpackPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {state.operand("unpack_packets", src, rank_, src.size, origin, Form::Packet)},
                 {state.operand("unpack_packets", dst, rank_, src.size, origin)}, src.size, origin);
}

void Rank::reduce(const Chunk& src, const std::vector<Chunk>& others, const Blocks& blocks,
                  const std::optional<Chunk>& dst, bool packet, Origin origin) {
  ProgramState& state = program_->state();
  if (others.empty()) fail(origin, "reduce: no further chunks to add");
  std::vector<Operand> sources{state.operand("reduce", src, rank_, src.size, origin)};
  for (const Chunk& other : others) {
    sources.push_back(state.operand("reduce", other, rank_, src.size, origin, packet ? Form::Packet : Form::Plain));
  }
  state.transfer(rank_, blocks, sources, {state.operand("reduce", dst.value_or(src), rank_, src.size, origin)},
                 src.size, origin);
}

void Rank::barrier(const std::vector<int>& blocks, Origin origin) {
  ProgramState& state = program_->state();
  std::vector<int> sorted = blocks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) fail(origin, "barrier: no thread blocks");
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(origin, "barrier: a thread block is listed twice; list each once");
  }
  int next = 0;
  for (const auto& [key, id] : state.barriers) next += key.first == rank_;
  const int id = state.barriers.try_emplace({rank_, sorted}, next).first->second;
  for (const int block : sorted) {
    state.record(rank_, block, {{.kind = OperationKind::Barrier, .index = id, .blocks = countOf(sorted)}},
                 SyncType::None, origin);
  }
}

Semaphore::Semaphore(CollectiveProgram& program, int rank, int initialValue, Origin origin)
    : program_(&program), rank_(rank), index_(0) {
  program.state().requireRank(rank, origin);
  if (initialValue < 0) {
    fail(origin, "a semaphore with the initial value ", initialValue, "; pass 0 or more");
  }
  auto& semaphores = program.state().draft.ranks[rank].semaphores;
  index_ = countOf(semaphores);
  semaphores.push_back(initialValue);
}

void Semaphore::acquire(int block, SyncType dataSync, Origin origin) {
  program_->state().record(rank_, block, {{.kind = OperationKind::Acquire}, {}, {}, {index_}}, dataSync, origin);
}

void Semaphore::release(int block, SyncType dataSync, Origin origin) {
  program_->state().record(rank_, block, {{.kind = OperationKind::Release}, {}, {}, {index_}}, dataSync, origin);
}

Channel::Channel(CollectiveProgram& program, Access access, int destination, int source, const Origin& origin)
    : program_(&program), access_(access), destination_(destination), source_(source), index_(0) {
  program.state().requireRank(destination, origin);
  program.state().requireRank(source, origin);
  if (destination == source) {
    fail(origin, "a channel of rank ", source,
         " to itself: name two ranks; within a rank, copy and barrier need no channel");
  }
  index_ = program.state().addChannel(source, {access, destination}, origin);
}

void Channel::signal(int block, SyncType dataSync, bool relaxed, Origin origin) {
  program_->state().record(source_, block, {{.kind = OperationKind::Signal, .relaxed = relaxed}, {}, {}, {index_}},
                           dataSync, origin);
}

void Channel::wait(int block, SyncType dataSync, bool relaxed, Origin origin) {
  program_->state().record(source_, block, {{.kind = OperationKind::Wait, .relaxed = relaxed}, {}, {}, {index_}},
                           dataSync, origin);
}

void Channel::put(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(source_, blocks, {state.operand("put", src, source_, src.size, origin)},
                 {state.operand("put", dst, destination_, src.size, origin, Form::Plain, access_, index_)}, src.size,
                 origin);
}

void Channel::putPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  const Form form = access_ == Access::Port ? Form::Packet : Form::Plain;
  state.transfer(source_, blocks, {state.operand("put_packets", src, source_, src.size, origin, form)},
                 {state.operand("put_packets", dst, destination_, src.size, origin, Form::Packet, access_, index_)},
                 src.size, origin);
}

void Channel::readPutPackets(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(
      source_, blocks, {state.operand("read_put_packets", src, source_, src.size, origin, Form::Packet)},
      {state.operand("read_put_packets", dst, destination_, src.size, origin, Form::Packet, access_, index_)}, src.size,
      origin);
}

void MemoryChannel::get(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(source_, blocks,
                 {state.operand("get", src, destination_, src.size, origin, Form::Plain, Access::Memory)},
                 {state.operand("get", dst, source_, src.size, origin)}, src.size, origin);
}

void MemoryChannel::reduce(const Chunk& localSrc, const std::vector<Chunk>& remoteSrcs, const Blocks& blocks,
                           const std::optional<Chunk>& localDst, Origin origin) {
  ProgramState& state = program_->state();
  if (remoteSrcs.empty()) fail(origin, "reduce: no remote chunks to add");
  std::vector<Operand> sources{state.operand("reduce", localSrc, source_, localSrc.size, origin)};
  for (const Chunk& remote : remoteSrcs) {
    sources.push_back(
        state.operand("reduce", remote, destination_, localSrc.size, origin, Form::Plain, Access::Memory));
  }
  state.transfer(source_, blocks, sources,
                 {state.operand("reduce", localDst.value_or(localSrc), source_, localSrc.size, origin)}, localSrc.size,
                 origin);
}

void PortChannel::flush(int block, SyncType dataSync, Origin origin) {
  program_->state().record(source_, block, {{.kind = OperationKind::Flush}, {}, {}, {index_}}, dataSync, origin);
}

void PortChannel::putWithSignal(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  put(dst, src, blocks, origin);
  for (const int block : blocks.list()) signal(block, SyncType::None, false, origin);
}

void PortChannel::putWithSignalAndFlush(const Chunk& dst, const Chunk& src, const Blocks& blocks, Origin origin) {
  putWithSignal(dst, src, blocks, origin);
  for (const int block : blocks.list()) flush(block, SyncType::None, origin);
}

SwitchChannel::SwitchChannel(CollectiveProgram& program, std::vector<int> ranks, BufferType buffer, Origin origin)
    : program_(&program), ranks_(std::move(ranks)), buffer_(buffer) {
  std::vector<int> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.size() < 2) fail(origin, "a switch channel has at least two ranks");
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(origin, "a switch channel lists a rank twice; list each once");
  }
  for (const int rank : ranks_) program.state().requireRank(rank, origin);
  for (const int rank : ranks_) {
    indices_.push_back(program.state().addChannel(rank, {Access::Switch, rank, buffer, ranks_}, origin));
  }
}

SwitchChannel::AtRank SwitchChannel::atRank(int rank, Origin origin) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) fail(origin, "rank ", rank, " is not among the ranks of the switch channel");
  AtRank at;
  at.program_ = program_;
  at.rank_ = rank;
  at.index_ = indices_[found - ranks_.begin()];
  at.buffer_ = buffer_;
  return at;
}

namespace {

Operand onSwitch(const ProgramState& state, const char* operation, int rank, int channel, BufferType buffer, int offset,
                 int size, Form form, const Origin& origin) {
  Operand operand = state.operand(operation, {rank, buffer, offset, size}, rank, size, origin, form);
  operand.access = Access::Switch;
  operand.channel = static_cast<std::int16_t>(channel);
  return operand;
}

}  // namespace

void SwitchChannel::AtRank::reduce(int offset, int size, const Chunk& dst, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {onSwitch(state, "reduce", rank_, index_, buffer_, offset, size, Form::Plain, origin)},
                 {state.operand("reduce", dst, rank_, size, origin)}, size, origin);
}

void SwitchChannel::AtRank::broadcast(const Chunk& src, int offset, int size, const Blocks& blocks, Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {state.operand("broadcast", src, rank_, size, origin)},
                 {onSwitch(state, "broadcast", rank_, index_, buffer_, offset, size, Form::Plain, origin)}, size,
                 origin);
}

void SwitchChannel::AtRank::broadcastPackets(const Chunk& src, int offset, int size, const Blocks& blocks,
                                             Origin origin) {
  ProgramState& state = program_->state();
  state.transfer(rank_, blocks, {state.operand("broadcast_packets", src, rank_, size, origin)},
                 {onSwitch(state, "broadcast_packets", rank_, index_, buffer_, offset, size, Form::Packet, origin)},
                 size, origin);
}

LoopIterationContext::LoopIterationContext(CollectiveProgram& program, std::uint64_t unit, int numChunks, Origin origin)
    : program_(&program) {
  ProgramState& state = program.state();
  if (state.loopUnit > 0) fail(origin, "loops cannot be nested");
  if (unit == 0 || numChunks < 1) fail(origin, "a loop has a positive unit of bytes and at least one chunk");
  state.loopUnit = (unit + numChunks - 1) / static_cast<std::uint64_t>(numChunks);
}

void LoopIterationContext::end() noexcept {
  if (program_ == nullptr) return;
  ProgramState& state = program_->state();
  for (const auto& [rank, block] : state.inLoop) {
    auto& steps = state.draft.ranks[rank].blocks[block];
    steps.push_back({{.kind = OperationKind::LoopEnd, .origin = steps.back().operation.origin}});
  }
  state.inLoop.clear();
  state.loopUnit = 0;
  program_ = nullptr;
}

}  // namespace mscclpp::language
