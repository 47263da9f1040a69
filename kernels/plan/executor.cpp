// The executor of plans.
#include "mscclpp/kernels/executor.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "call_agreement.hpp"
#include "compiled_plans.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "interpreters.hpp"
#include "kernels/backend.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/jit/program.hpp"
#include "plan_call.hpp"
#include "plan_context.hpp"
#include "plan_proxy.hpp"
#include "plan_source.hpp"
#include "proofs.hpp"
#include "recently_used.hpp"
#include "user_buffers.hpp"

namespace mscclpp {

using namespace kernels;

namespace {

/// The least room of a scratch chunk: so many messages are not set up one by one.
constexpr std::size_t leastSlotBytes = std::size_t{16} << 10;
/// Pairs of users' buffers, with a size, that stay registered, and numbers of iterations of loops that keep a scratch
/// of their own, beside those that captured graphs use. More are released, the least recently used first.
constexpr std::size_t mostBuffers = 1024;
constexpr std::size_t mostIterationNumbers = 8;
/// Of Staging: a larger one serves smaller messages too.
constexpr std::size_t mostStagings = 1;
constexpr std::size_t mostPortTables = 1024;

using Launch = std::function<void(const PlanKernel&)>;

plan::PacketFormat formatOf(PacketType packetType) {
  return packetType == PacketType::LL8 ? plan::PacketFormat::LL8 : plan::PacketFormat::LL16;
}

std::uint64_t loopUnitOf(const plan::Plan& plan) {
  for (const plan::Operation& operation : plan.operations)
    if (operation.kind == plan::OperationKind::LoopBegin) return operation.unitBytes;
  return 0;
}

/// The threads of a block that have a pack of 16 bytes of a chunk to transfer; a few more read an interpreted program.
int threadsOf(const plan::Plan& plan, const plan::Message& message) {
  constexpr std::uint64_t least = 128;
  const std::uint64_t packs = roundUp(ceilDivide(message.bytesAt(0), sizeof(Word128)), 32);
  return static_cast<int>(std::min(std::max(packs, least), static_cast<std::uint64_t>(plan.threadsPerBlock)));
}

}  // namespace

class Executor::State {
 public:
  State(std::shared_ptr<Communicator> communicator, std::size_t scratchBytes, DeviceType where, PlanCode code)
      : communicator_(std::move(communicator)),
        scratchBytes_(scratchBytes),
        where_(where),
        code_(code),
        backend_(where == DeviceType::GPU ? gpuBackend() : cpuBackend()),
        rank_(communicator_->bootstrap()->getRank()),
        ranks_(communicator_->bootstrap()->getNranks()),
        monitor_(WaitMonitor::ofTeam(*communicator_, where)) {
    if (ranks_ > maxTeamSize) {
      throw Error("Executor: plans have at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                      std::to_string(ranks_) + ": split it",
                  ErrorCode::InvalidUsage);
    }
  }

  void check() const {
    monitor_->check();
    if (proxy_.service() != nullptr) {
      proxy_.service()->check();
      communicator_->monitor(where_)->check();
    }
  }

  bool isSpecialised(const ExecutionPlan& plan) const { return kernels_.hasKernelOf(plan.contentHash()); }

  void reset() {
    contexts_.clear();
    buffers_.clear();
    programs_.clear();
    proxy_.reset();
  }

  ExecutorMemory memory() const {
    ExecutorMemory memory{};
    memory.buffers = buffers_.size();
    for (const auto& [key, contexts] : contexts_) {
      memory.contexts += contexts.size();
      for (const auto& context : contexts.entries()) {
        memory.scratchBytes += context.value.memory->scratch().bytes();
        for (const auto& staging : context.value.stagings.entries())
          memory.stagingBytes += staging.value.memory().bytes();
      }
    }
    return memory;
  }

  /// launch: of a kernel of the caller's; empty: of the executor's.
  void execute(int rank, const PlanCall& call, const ExecutionPlan& plan, CUstream_st* stream,
               plan::PacketFormat format, const Launch& launch) {
    check();
    const std::optional<Job> job = begin(rank, call, plan, stream, format, launch);
    if (!job) return;
    Use use{};
    find(*job, use);
    const bool needsCode = where_ == DeviceType::GPU && code_ == PlanCode::Specialised && !launch &&
                           !kernels_.isDecided(job->codeKey) && !backend_.isCapturing(stream);
    if (needsCode || !isComplete(*job, use)) setUp(*job, use, needsCode);
    job->program.isSetUp = true;
    job->contexts.touch(*use.context);
    if (use.buffers != nullptr) buffers_.touch(*use.buffers);
    if (use.staging != nullptr) use.context->value.stagings.touch(*use.staging);
    if (use.portTable != nullptr) use.context->value.portTables.touch(*use.portTable);
    run(*job, use);
    if (where_ == DeviceType::CPU) check();
  }

 private:
  struct Program {
    plan::RankProgram rank;
    bool reduces;
    std::uint64_t loopUnit;        ///< of all loops of the plan; 0: it has none
    bool isSetUp = false;          ///< at least for some calls
    std::uint64_t iterations = 0;  ///< of the loops in the first call
    std::optional<bool> mixes{};   ///< whether calls of other numbers may follow; empty: not asked yet
  };
  /// Plan, packet format, stream, room of the scratch's chunks.
  using ContextKey = std::tuple<std::uint64_t, int, CUstream_st*, std::size_t>;
  /// Plan, stream, input, output, bytes of a part. The size, since a rank's address may depend on it: such as
  /// `base + rank * bytes`, which is new on all ranks but the first.
  using BufferKey = std::tuple<std::uint64_t, CUstream_st*, std::uint64_t, std::uint64_t, std::uint64_t>;
  using Buffers = RecentlyUsed<BufferKey, UserBuffers>;
  /// By their bytes.
  using Stagings = RecentlyUsed<std::size_t, Staging>;
  /// The numbers of the buffers and of the Staging that ExecutionArgs::memories is for, and the bytes of a part if the
  /// places in the buffers depend on them.
  using PortKey = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  using PortTables = RecentlyUsed<PortKey, std::shared_ptr<void>>;
  struct Context {
    explicit Context(std::unique_ptr<PlanMemory> of) : memory(std::move(of)) {}
    std::unique_ptr<PlanMemory> memory;
    Stagings stagings{mostStagings};
    PortTables portTables{mostPortTables};
  };
  /// By iterationsThatMix().
  using Contexts = RecentlyUsed<std::uint64_t, Context>;
  /// What a call uses, of this executor's; null: nothing of the kind.
  struct Use {
    Contexts::Entry* context;
    Buffers::Entry* buffers;
    Stagings::Entry* staging;
    PortTables::Entry* portTable;
  };

  /// A call that fits its plan, and has something to do.
  struct Job {
    const ExecutionPlan& plan;
    Program& program;
    PlanCall call;
    plan::Message message;
    BufferRequest request;
    BufferKey bufferKey;
    CompiledPlans::Key codeKey;
    Contexts& contexts;        ///< of its plan, format, stream and size
    std::uint64_t iterations;  ///< iterationsThatMix()
    std::size_t slotBytes;
    plan::PacketFormat format;
    CUstream_st* stream;
    const Launch& launch;

    bool usesPorts() const { return program.rank.usesPorts; }
    bool usesBuffers() const { return program.rank.reachesUserBuffers || usesPorts(); }
    bool registersBuffers() const { return usesBuffers() && !request.copied; }
    /// Whether messages are copied through memory of the executor, as far as is known before the set-up.
    bool isCopied(const Use& use) const {
      return usesBuffers() && (use.buffers == nullptr || use.buffers->value.isCopied());
    }
    PortKey portKey(const Use& use) const {
      return {use.staging == nullptr ? use.buffers->number : 0, use.staging == nullptr ? 0 : use.staging->number,
              request.hasOffsets() ? message.partBytes : 0};
    }
  };

  Bootstrap& bootstrap() const { return *communicator_->bootstrap(); }
  RankOf caller() const { return {rank_, ranks_}; }

  /// Validates a call. Nothing: it is of no bytes. Other ranks that are about to set the plan up learn of an error.
  std::optional<Job> begin(int rank, PlanCall call, const ExecutionPlan& plan, CUstream_st* stream,
                           plan::PacketFormat format, const Launch& launch) {
    const bool isAnnounced = !allRanksHaveData(plan.plan());
    if (isEmpty(call) && !isAnnounced) {
      fitToPlan(plan, call, rank, caller());
      return std::nullopt;
    }
    CallIdentity identity{};
    if (isAnnounced) {
      identity = announceCall(bootstrap(), plan, call, rank, caller());
      if (identity.partBytes == 0) return std::nullopt;
    }
    const auto known = programs_.find(plan.contentHash());
    const bool isSetUp = known != programs_.end() && known->second.isSetUp;
    plan::Message message{};
    std::size_t slotBytes = 0;
    Program* program = nullptr;
    try {
      message = fitToPlan(plan, call, rank, caller());
      if (isAnnounced) message = kernels::messageOf(plan.plan(), call.type, identity.partBytes);
      program = known != programs_.end() ? &known->second : &addProgram(plan);
      slotBytes = slotBytesFor(plan, program->rank, message, format);
    } catch (...) {
      if (!isSetUp) failSetup(bootstrap(), plan);
      throw;
    }
    if (message.partBytes == 0) return std::nullopt;
    if (!isAnnounced) identity = identityOf(call, message);
    const std::uint64_t hash = plan.contentHash();
    const ContextKey contextKey{hash, static_cast<int>(format), stream, slotBytes};
    return Job{plan,
               *program,
               call,
               message,
               bufferRequestOf(plan, message, call, ranks_),
               {hash, stream, identity.input, identity.output, identity.partBytes},
               {hash, format, call.type, program->reduces ? call.op : ReduceOp::SUM},
               contexts_.try_emplace(contextKey, mostIterationNumbers).first->second,
               iterationsThatMix(plan, *program, message),
               slotBytes,
               format,
               stream,
               launch};
  }

  /// Adds to `use` what there is for a call; all that follows from what is missing stays null.
  void find(const Job& job, Use& use) {
    if (use.context == nullptr) use.context = job.contexts.find(job.iterations);
    if (use.buffers == nullptr && job.registersBuffers()) use.buffers = buffers_.find(job.bufferKey);
    if (use.context == nullptr || (job.registersBuffers() && use.buffers == nullptr)) return;
    Context& context = use.context->value;
    const bool isCopied = job.isCopied(use);
    if (isCopied) use.staging = context.stagings.findNotLess(Staging::bytesFor(job.request));
    if (job.usesPorts() && (!isCopied || use.staging != nullptr))
      use.portTable = context.portTables.find(job.portKey(use));
  }
  static bool isComplete(const Job& job, const Use& use) {
    return use.context != nullptr && (!job.registersBuffers() || use.buffers != nullptr) &&
           (!job.isCopied(use) || use.staging != nullptr) && (!job.usesPorts() || use.portTable != nullptr);
  }

  /// By all ranks together: adds what is missing.
  void setUp(const Job& job, Use& use, bool needsCode) {
    const mscclpp::detail::GroupSetup setup(*communicator_);
    const bool needsContext = use.context == nullptr;
    const bool needsBuffers = job.registersBuffers() && use.buffers == nullptr;
    agreeOnSetup(bootstrap(), job.plan,
                 {job.plan.contentHash(), job.message.partBytes, job.slotBytes, static_cast<std::uint32_t>(job.format),
                  (needsContext ? 1u : 0u) + (needsBuffers ? 2u : 0u) + (needsCode ? 4u : 0u), job.request.inPlace,
                  static_cast<std::uint32_t>(job.call.type) << 8 | static_cast<std::uint32_t>(job.codeKey.op)},
                 backend_, job.stream);
    if (needsCode) kernels_.compile(bootstrap(), job.plan, job.program.rank, job.codeKey);
    if (needsContext) reserveBlocks(job.plan);
    if (job.usesPorts()) proxy_.start(where_);
    if (needsContext) {
      makeRoom(job.contexts);
      use.context = &job.contexts.add(
          job.iterations, Context(std::make_unique<PlanMemory>(*communicator_, where_, backend_, job.program.rank,
                                                               job.plan.plan().doubleScratch, job.slotBytes, job.format,
                                                               proxy_.service())));
    }
    if (needsBuffers) {
      makeRoom(buffers_);
      use.buffers = &buffers_.add(job.bufferKey, UserBuffers(*communicator_, backend_, job.request));
    }
    find(job, use);
    Context& context = use.context->value;
    if (job.isCopied(use) && use.staging == nullptr) {
      makeRoom(context.stagings);
      const std::size_t bytes = Staging::bytesFor(job.request);
      use.staging = &context.stagings.add(bytes, Staging(*communicator_, where_, job.request.inPlace, bytes));
    }
    if (job.usesPorts() && use.portTable == nullptr) {
      makeRoom(context.portTables);
      use.portTable = &context.portTables.add(job.portKey(use), makePortTable(*context.memory, job.request, use));
    }
  }

  /// Called on all ranks, in a set-up, before something is added to the table.
  template <class Table>
  void makeRoom(Table& table) const {
    if (!table.isFull()) return;
    const mscclpp::detail::GroupAgreement agreement(bootstrap(), "Executor");
    // Afterwards, no call of any rank is in flight.
    table.release(agreement.runStep("release memory of earlier calls", [&] {
      backend_.awaitWork();
      return table.uses();
    }));
  }

  Program& addProgram(const ExecutionPlan& plan) {
    return programs_
        .emplace(plan.contentHash(),
                 Program{plan::programOf(plan.plan(), rank_), reduces(plan.plan()), loopUnitOf(plan.plan())})
        .first->second;
  }

  /// A number for calls that may follow each other with the same scratch. The proof of a plan is about calls with the
  /// same number of iterations of its loops; that others may follow is proven when one does, which all ranks wait for,
  /// or each number gets a scratch of its own. The same on all ranks.
  std::uint64_t iterationsThatMix(const ExecutionPlan& plan, Program& program, const plan::Message& message) const {
    if (program.loopUnit == 0) return 0;
    const std::uint64_t iterations = plan::iterationsOf(message, program.loopUnit);
    if (program.iterations == 0) program.iterations = iterations;
    if (iterations == program.iterations) return iterations;
    if (!program.mixes) {
      const mscclpp::detail::GroupAgreement agreement(bootstrap(), "Executor");
      const auto all = agreement.runStep("prove the plan \"" + plan.name() + "\" for calls of different lengths", [&] {
        return std::vector<char>{plan::Proofs::ofUser().allowMixedIterations(plan.plan()) ? '\1' : '\0'};
      });
      program.mixes = std::all_of(all.begin(), all.end(), [](const auto& ofRank) { return ofRank.at(0) != '\0'; });
      if (!*program.mixes) {
        logMessage(LogLevel::Info, LogSubsystem::Exec, "plan ", plan.name(),
                   ": each number of iterations of its loops gets memory of its own");
      }
    }
    return *program.mixes ? program.iterations : iterations;
  }

  /// The room of a chunk of the scratch, which grows by powers of two.
  std::size_t slotBytesFor(const ExecutionPlan& plan, const plan::RankProgram& program, const plan::Message& message,
                           plan::PacketFormat format) const {
    if (program.scratchChunks == 0) return 0;
    const bool isDouble = plan.plan().doubleScratch;
    const auto fits = [&](std::size_t slotBytes) {
      return scratchBytesOf(program, isDouble, slotBytes, format) <= scratchBytes_;
    };
    const std::size_t needed = std::max<std::size_t>(message.bytesAt(0), 1);
    const std::size_t rounded = std::max(std::bit_ceil(needed), leastSlotBytes);
    if (fits(rounded)) return rounded;
    if (fits(needed)) return needed;
    throwInvalidPlanCall(plan, "a message with parts of " + std::to_string(message.partBytes) +
                                   " bytes needs a scratch of " +
                                   std::to_string(scratchBytesOf(program, isDouble, needed, format)) +
                                   " bytes, but the executor's are limited to " + std::to_string(scratchBytes_) +
                                   ": pass a larger defaultScratchBufferSize to Executor on all ranks");
  }

  /// ExecutionArgs::memories of a call, in memory of the backend.
  std::shared_ptr<void> makePortTable(const PlanMemory& memory, const BufferRequest& request, const Use& use) {
    const BufferWindows windows =
        use.staging != nullptr ? use.staging->value.windows(request) : use.buffers->value.windows(request);
    return proxy_.makeTable(backend_, ranks_, [&](plan::BufferKind kind, int rank) -> PlanProxy::Place {
      if (kind == plan::BufferKind::Scratch) {
        return {memory.scratch().memory(rank), memory.args().buffers[static_cast<int>(kind)].base[rank]};
      }
      const bool isOutput = kind == plan::BufferKind::Output;
      return {
          use.staging != nullptr ? use.staging->value.memory().memory(rank) : use.buffers->value.memory(isOutput, rank),
          (isOutput ? windows.output : windows.input).base[rank]};
    });
  }

  /// All blocks of a plan's kernel must be resident at once, on all ranks.
  void reserveBlocks(const ExecutionPlan& plan) {
    const auto budget = backend_.budget();
    const int blocks = mostBlocksOf(plan.plan());
    if (budget == nullptr || (share_ != nullptr && blocks <= share_->blocks())) return;
    if (share_ == nullptr) {
      share_ = reserveOnAllRanks(bootstrap(), budget, blocks, "Executor");
    } else {
      resizeOnAllRanks(bootstrap(), *share_, blocks, "Executor");
    }
    if (blocks <= share_->blocks()) return;
    throwInvalidPlanCall(plan,
                         "it has " + std::to_string(blocks) + " blocks, which must be resident on a GPU at once, but " +
                             std::to_string(share_->blocks()) +
                             " are left: make it with fewer blocks or instances, or give other objects of these GPUs "
                             "fewer (maxBlocks of Collectives)");
  }

  void run(const Job& job, const Use& use) {
    const PlanMemory& memory = *use.context->value.memory;
    plan::ExecutionArgs args = memory.args();
    Window<>& input = args.buffers[static_cast<int>(plan::BufferKind::Input)];
    Window<>& output = args.buffers[static_cast<int>(plan::BufferKind::Output)];
    if (use.buffers != nullptr) use.buffers->value.requireAllocated();
    const bool isCopied = use.staging != nullptr;
    if (isCopied || use.buffers != nullptr) {
      const BufferWindows windows =
          isCopied ? use.staging->value.windows(job.request) : use.buffers->value.windows(job.request);
      input = windows.input;
      output = windows.output;
    } else {
      input.base[rank_] = static_cast<std::byte*>(job.request.input);
      output.base[rank_] = static_cast<std::byte*>(job.request.output);
    }
    if (use.portTable != nullptr) args.memories = static_cast<const plan::PortMemory*>(use.portTable->value.get());
    args.message = job.message;
    args.op = {job.call.op};
    args.wait = BoundedWait(monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count()));

    const auto move = [&](void* to, const void* from, std::size_t bytes) {
      if (bytes == 0) return;
      if (where_ == DeviceType::GPU) {
        gpu::copyAsync(to, from, bytes, job.stream);
      } else {
        std::memcpy(to, from, bytes);
      }
    };
    CallOrder::Turn turn = share_ != nullptr ? share_->begin(job.stream) : CallOrder::Turn();
    if (turn.isCaptured()) {
      use.context->isCaptured = true;
      if (use.buffers != nullptr) use.buffers->isCaptured = true;
      if (use.staging != nullptr) use.staging->isCaptured = true;
      if (use.portTable != nullptr) use.portTable->isCaptured = true;
    }
    if (isCopied) move(input.base[rank_], job.request.input, job.call.inputBytes);
    // A copy is no kernel that the next one could start beside.
    const KernelStart start = share_ != nullptr && !isCopied ? share_->start() : KernelStart::InOrder;
    const jit::Kernel* const compiled = kernels_.find(job.codeKey);
    const PlanLaunch launch{memory.blocks(), threadsOf(job.plan.plan(), job.message), memory.sharedBytes(), job.stream,
                            start};
    const int wholeWarps = std::clamp(launch.threads / 32 * 32, 32, mostPlanThreads);
    if (job.launch) {
      job.launch({args, input.base[rank_], output.base[rank_], launch.blocks, wholeWarps, job.stream});
    } else if (launch.blocks == 0) {
      // This rank does nothing in the plan.
    } else if (compiled != nullptr) {
      compiled->launch({.shape = {launch.blocks, wholeWarps},
                        .stream = job.stream,
                        .overlapPrevious = launch.start == KernelStart::Early},
                       args);
    } else if (where_ == DeviceType::GPU) {
      gpu::interpret(job.call.type, launch, args);
    } else {
      cpu::interpret(job.call.type, launch, args);
    }
    if (isCopied) move(job.request.output, output.base[rank_], job.call.outputBytes);
    turn.end();
  }

  std::shared_ptr<Communicator> communicator_;
  std::size_t scratchBytes_;
  DeviceType where_;
  PlanCode code_;
  const Backend& backend_;
  int rank_;
  int ranks_;
  std::shared_ptr<WaitMonitor> monitor_;
  PlanProxy proxy_;
  std::unique_ptr<GpuBudget::Share> share_;  ///< for the plan with the most blocks; null on CPUs
  std::map<std::uint64_t, Program> programs_;
  std::map<ContextKey, Contexts> contexts_;
  Buffers buffers_{mostBuffers};
  CompiledPlans kernels_;
};

Executor::Executor(std::shared_ptr<Communicator> communicator, std::size_t defaultScratchBufferSize, DeviceType where,
                   PlanCode code) {
  if (communicator == nullptr) throw Error("Executor: the communicator is null", ErrorCode::InvalidUsage);
  state_ = std::make_unique<State>(std::move(communicator), defaultScratchBufferSize, where, code);
}
Executor::~Executor() = default;

void Executor::execute(int rank, const void* sendbuff, void* recvbuff, std::size_t sendBuffSize,
                       std::size_t recvBuffSize, DataType dataType, const ExecutionPlan& plan, CUstream_st* stream,
                       PacketType packetType, ReduceOp op) {
  state_->execute(rank, {sendbuff, recvbuff, sendBuffSize, recvBuffSize, dataType, op}, plan, stream,
                  formatOf(packetType), {});
}

void Executor::execute(int rank, const void* sendbuff, void* recvbuff, std::size_t sendBuffSize,
                       std::size_t recvBuffSize, DataType dataType, const ExecutionPlan& plan, CUstream_st* stream,
                       const std::function<void(const PlanKernel&)>& launch, PacketType packetType) {
  if (!launch) throwInvalidPlanCall(plan, "execute() needs a function that launches the kernel");
  state_->execute(rank, {sendbuff, recvbuff, sendBuffSize, recvBuffSize, dataType, ReduceOp::SUM}, plan, stream,
                  formatOf(packetType), launch);
}

bool Executor::isSpecialised(const ExecutionPlan& plan) const {
  return state_->isSpecialised(plan);
}
ExecutorMemory Executor::memory() const {
  return state_->memory();
}
void Executor::check() const {
  state_->check();
}

void Executor::reset() {
  state_->reset();
}

}  // namespace mscclpp
