#include "mscclpp/kernels/plan/chunk_program.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "instruction_schedule.hpp"
#include "instructions.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::msccl {

using plan::BufferKind;
using plan::countOf;
using plan::textOf;
using plan::TracedOperation;

namespace {

constexpr int maxChannels = 1 << 15;  ///< of two ranks

template <class... Parts>
[[noreturn]] void fail(const Origin& origin, const Parts&... why) {
  plan::reject(origin.text, origin.text.empty() ? "" : ": ", why...);
}

}  // namespace

/// What a program has done so far.
class ProgramTrace {
 public:
  struct Slot {
    int version = 0;
    bool filled = false;
  };

  ProgramTrace(const ProgramOptions& given, const Origin& origin) : options(given) {
    const Collective& collective = options.collective;
    if (const std::string why = plan::refusesProgram(collective, options.instances); !why.empty()) fail(origin, why);
    program.header = {.collective = collective.kind,
                      .ranks = collective.ranks,
                      .root = collective.root,
                      .chunksPerPart = collective.chunksPerPart(),
                      .inPlace = collective.inPlace,
                      .threadsPerBlock = options.threadsPerBlock};
    program.name = options.name;
    program.packets = options.protocol != Protocol::Simple;
    program.ranksPerNode = options.ranksPerNode;
    draft = makeDraft(program.header, options.name);
    slots.resize(collective.ranks);
    for (int r = 0; r < collective.ranks; ++r) {
      plan::DraftRank& rank = draft.ranks[r];
      if (collective.kind == plan::CollectiveKind::Custom) {
        rank.inputChunks = collective.inputChunks;
        rank.outputChunks = collective.outputChunks;
      }
      slots[r].resize(2);
      slots[r][0].assign(rank.inputChunks, {0, true});
      slots[r][1].resize(rank.outputChunks);
    }
  }

  struct Location {
    int rank, buffer, index;
  };

  /// In a call in place some outputs are inputs.
  Location locate(int rank, int buffer, int index) const {
    if (buffer != 1) return {rank, buffer, index};
    const plan::Operand operand =
        canonical(draft, {.buffer = BufferKind::Output, .rank = static_cast<std::int16_t>(rank), .first = index});
    return {rank, operand.buffer == BufferKind::Input ? 0 : 1, operand.first};
  }
  Slot& slot(const Location& at) { return slots[at.rank][at.buffer][at.index]; }

  void requireRank(int rank, const Origin& origin) const {
    if (rank < 0 || rank >= program.header.ranks) {
      fail(origin, "rank ", rank, " does not exist: the program has ", program.header.ranks);
    }
  }
  int bufferOf(const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<int>(found - names.begin());
    names.push_back(name);
    for (auto& rank : slots) rank.resize(names.size());
    return countOf(names) - 1;
  }
  /// Scratch grows with its use.
  void requireChunks(int rank, int buffer, int index, int size, const Origin& origin) {
    requireRank(rank, origin);
    if (size < 1) fail(origin, "a reference to ", size, " chunks");
    auto& list = slots[rank][buffer];
    const std::int64_t end = std::int64_t{index} + size;
    if (buffer > 1 && index >= 0 && end <= plan::maxCells && countOf(list) < end) {
      list.resize(static_cast<std::size_t>(end));
    }
    if (index < 0 || end > countOf(list)) {
      fail(origin, "chunks ", index, " to ", end - 1, " of buffer ", names[buffer], " of rank ", rank, ", which has ",
           list.size(), buffer > 1 ? textOf("; the most are ", plan::maxCells) : std::string());
    }
  }
  std::vector<int> versions(int rank, int buffer, int index, int size) {
    std::vector<int> list;
    for (int i = 0; i < size; ++i) list.push_back(slot(locate(rank, buffer, index + i)).version);
    return list;
  }
  void requireFresh(int rank, int buffer, int index, const std::vector<int>& known, const Origin& origin) {
    if (versions(rank, buffer, index, countOf(known)) == known) return;
    fail(origin, "a stale reference: chunk ", index, " of buffer ", names[buffer], " of rank ", rank,
         " was overwritten since; take a new one with chunk()");
  }
  void record(TracedOperation operation, const Origin& origin) {
    if (const std::string why = plan::refusesOperations(countOf(operations) + 1); !why.empty()) fail(origin, why);
    for (const auto& [name, number] : {std::pair{"sendtb", operation.sendBlock}, {"recvtb", operation.receiveBlock}}) {
      if (number >= -1 && number < plan::maxRankBlocks) continue;
      fail(origin, name, " is ", number, "; blocks are numbered from 0 to ", plan::maxRankBlocks - 1,
           ", and -1 leaves it to the compiler");
    }
    if (operation.channel < -1 || operation.channel >= maxChannels) {
      fail(origin, "ch is ", operation.channel, "; channels are numbered from 0 to ", maxChannels - 1,
           ", and -1 leaves it to the compiler");
    }
    operation.origin = draft.origin(origin.text);
    const auto& to = operation.destination;
    write(to.rank, static_cast<int>(to.place.buffer), to.place.index, operation.count);
    operations.push_back(std::move(operation));
  }
  void write(int rank, int buffer, int index, int size) {
    for (int i = 0; i < size; ++i) {
      Slot& written = slot(locate(rank, buffer, index + i));
      ++written.version;
      written.filled = true;
    }
  }

  plan::InstructionProgram compile() const {
    if (operations.empty() && program.header.ranks > 1) {
      plan::reject("program ", options.name, ": it has no operations");
    }
    plan::InstructionProgram result = program;
    result.origins = draft.origins;
    result.ranks.resize(program.header.ranks);
    // Scratch buffers lie behind each other.
    std::vector<std::vector<int>> offsets(program.header.ranks);
    for (int r = 0; r < program.header.ranks; ++r) {
      int next = 0;
      for (int b = 0; b < countOf(names); ++b) {
        offsets[r].push_back(next);
        if (b > 1) next += countOf(slots[r][b]);
      }
      result.ranks[r] = {draft.ranks[r].inputChunks, draft.ranks[r].outputChunks, next};
    }
    std::vector<TracedOperation> traced = operations;
    for (TracedOperation& operation : traced) {
      for (auto* place : {&operation.source, &operation.destination}) {
        const int buffer = static_cast<int>(place->place.buffer);  // the program's number
        place->place.buffer = buffer > 1 ? BufferKind::Scratch : (buffer == 1 ? BufferKind::Output : BufferKind::Input);
        place->place.index += offsets[place->rank][buffer];
      }
    }
    const bool manual = options.threadblockPolicy == ThreadblockPolicy::Manual;
    schedule(result, draft, traced, {.manualBlocks = manual, .fuse = options.instrFusion});
    return replicate(result, options.instances, !options.interleavedReplication);
  }

  ProgramOptions options;
  plan::InstructionProgram program;  ///< without instructions
  plan::Draft draft;                 ///< the sizes of its buffers
  std::vector<std::string> names{"input", "output"};
  std::vector<std::vector<std::vector<Slot>>> slots;  ///< of each rank and buffer
  std::vector<TracedOperation> operations;
};

const std::string& ChunkRef::buffer() const {
  return trace_->names[buffer_];
}

ChunkRef ChunkRef::copy(int dst, const BufferName& buffer, int index, Schedule schedule, Origin origin) const {
  ChunkRef result = *this;
  result.rank_ = dst;
  trace_->requireFresh(rank_, buffer_, index_, versions_, origin);
  trace_->requireRank(dst, origin);
  if (!buffer.name.empty()) {
    result.buffer_ = trace_->bufferOf(buffer.name);
    if (result.buffer_ > 1) result.index_ = countOf(trace_->slots[dst][result.buffer_]);
  }
  if (index != -1) result.index_ = index;
  trace_->requireChunks(dst, result.buffer_, result.index_, size_, origin);
  const auto from = trace_->locate(rank_, buffer_, index_), to = trace_->locate(dst, result.buffer_, result.index_);
  if (from.rank != to.rank || from.buffer != to.buffer || from.index != to.index) {
    trace_->record({false,
                    {rank_, {static_cast<BufferKind>(buffer_), index_}},
                    {dst, {static_cast<BufferKind>(result.buffer_), result.index_}},
                    size_,
                    schedule.sendtb,
                    schedule.recvtb,
                    schedule.ch},
                   origin);
  }
  result.versions_ = trace_->versions(dst, result.buffer_, result.index_, size_);
  return result;
}

ChunkRef ChunkRef::reduce(const ChunkRef& other, Schedule schedule, Origin origin) {
  trace_->requireFresh(rank_, buffer_, index_, versions_, origin);
  trace_->requireFresh(other.rank_, other.buffer_, other.index_, other.versions_, origin);
  if (other.size_ != size_) fail(origin, "a sum of ", size_, " and ", other.size_, " chunks");
  trace_->record({true,
                  {other.rank_, {static_cast<BufferKind>(other.buffer_), other.index_}},
                  {rank_, {static_cast<BufferKind>(buffer_), index_}},
                  size_,
                  schedule.sendtb,
                  schedule.recvtb,
                  schedule.ch},
                 origin);
  versions_ = trace_->versions(rank_, buffer_, index_, size_);
  return *this;
}

std::vector<ChunkRef> ChunkRef::split(int parts, Origin origin) const {
  if (parts < 1 || size_ % parts != 0) fail(origin, size_, " chunks cannot be split into ", parts, " equal parts");
  std::vector<ChunkRef> list;
  for (int i = 0; i < parts; ++i) {
    ChunkRef part = *this;
    part.size_ = size_ / parts;
    part.index_ = index_ + i * part.size_;
    part.versions_.assign(versions_.begin() + i * part.size_, versions_.begin() + (i + 1) * part.size_);
    list.push_back(std::move(part));
  }
  return list;
}

ChunkRef ChunkRef::group(const ChunkRef& other, Origin origin) const {
  if (other.index_ < index_) return other.group(*this, origin);
  if (other.rank_ != rank_ || other.buffer_ != buffer_) fail(origin, "a group of chunks of different buffers");
  if (other.index_ != index_ + size_) {
    fail(origin, "a group of chunks that do not follow each other: ", index_, " to ", index_ + size_ - 1, " and ",
         other.index_, " to ", other.index_ + other.size_ - 1);
  }
  ChunkRef both = *this;
  both.size_ += other.size_;
  both.versions_.insert(both.versions_.end(), other.versions_.begin(), other.versions_.end());
  return both;
}

MSCCLProgram::MSCCLProgram(const ProgramOptions& options, Origin origin)
    : trace_(std::make_unique<ProgramTrace>(options, origin)) {}
MSCCLProgram::~MSCCLProgram() = default;
MSCCLProgram::MSCCLProgram(MSCCLProgram&&) noexcept = default;
MSCCLProgram& MSCCLProgram::operator=(MSCCLProgram&&) noexcept = default;

const ProgramOptions& MSCCLProgram::options() const {
  return trace_->options;
}

ChunkRef MSCCLProgram::chunk(int rank, const BufferName& buffer, int index, int size, Origin origin) const {
  const int number = trace_->bufferOf(buffer.name);
  trace_->requireChunks(rank, number, index, size, origin);
  for (int i = 0; i < size; ++i) {
    if (trace_->slot(trace_->locate(rank, number, index + i)).filled) continue;
    fail(origin, "chunk ", index + i, " of buffer ", buffer.name, " of rank ", rank, " holds nothing yet");
  }
  ChunkRef reference;
  reference.trace_ = trace_.get();
  reference.rank_ = rank;
  reference.buffer_ = number;
  reference.index_ = index;
  reference.size_ = size;
  reference.versions_ = trace_->versions(rank, number, index, size);
  return reference;
}

bool MSCCLProgram::holds(int rank, const BufferName& buffer, int index, int size, Origin origin) const {
  trace_->requireRank(rank, origin);
  if (size < 1) fail(origin, "a reference to ", size, " chunks");
  if (index < 0) fail(origin, "chunk ", index, " of buffer ", buffer.name, ": chunks are numbered from 0");
  const auto& names = trace_->names;
  const auto found = std::find(names.begin(), names.end(), buffer.name);
  if (found == names.end()) return false;
  const int number = static_cast<int>(found - names.begin());
  if (number < 2) trace_->requireChunks(rank, number, index, size, origin);
  if (index > countOf(trace_->slots[rank][number]) - size) return false;
  for (int i = 0; i < size; ++i) {
    if (!trace_->slot(trace_->locate(rank, number, index + i)).filled) return false;
  }
  return true;
}

void MSCCLProgram::expect(int rank, int index, const std::vector<std::pair<int, int>>& contributions, Origin origin) {
  if (trace_->program.header.collective != plan::CollectiveKind::Custom) {
    fail(origin, "the results of this collective are known; expect() is for custom ones");
  }
  trace_->requireRank(rank, origin);
  trace_->program.expectations.push_back({rank, index, contributions});
}

plan::NamedPlan MSCCLProgram::compile() const {
  return plan::compileInstructions(trace_->compile());
}

void MSCCLProgram::check() const {
  plan::verified(compile());
}

std::string MSCCLProgram::toXml() const {
  return plan::writeXml(trace_->compile());
}

}  // namespace mscclpp::msccl
