// Execution of plans: a plan, loaded or made, and the executor that sets it up on the ranks of a communicator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/plan/plan.hpp"

struct CUstream_st;

namespace mscclpp {

class Communicator;
namespace plan {
struct ExecutionArgs;
}

/// The format of a plan's packets, with MSCCL++'s names and values. A call with another format has its own scratch.
enum class PacketType { LL8, LL16 };

/// How plans are executed on GPUs; on CPUs they are interpreted.
enum class PlanCode {
  /// By code that NVRTC compiles for the plan, the rank, the type and the operator, in the set-up of their first call,
  /// which takes seconds or, with the cache of jit/cache.hpp, some milliseconds. Where NVRTC is missing on any rank,
  /// for plans of more than 64 transfers that differ between the blocks of a rank, which would take minutes, and for
  /// types and operators that a captured call is the first to use: interpreted.
  Specialised,
  Interpreted  ///< by compiled kernels that read the operations from memory
};

/// A plan that can be executed. A value: copies share the plan.
class ExecutionPlan {
 public:
  /// The plan of a file (kernels/plan/file.hpp): in MSCCL++'s JSON schema, or another form. Throws what fromFile() and
  /// the other constructor throw.
  ExecutionPlan(const std::string& planPath, int rank);
  /// All ranks have the same plan. rank: the caller. Throws Error(InvalidUsage) if the plan is not proven
  /// (plan/check.hpp): the message says where and what to do. Also if it has no such rank. Multicast is not used: in
  /// place of switch channels, the memory of their members is read and written (plan/without_switches.hpp). That a plan
  /// is proven is kept in folder plans/ of MSCCLPP_CACHE_DIR: it is not checked again while the checker is the same.
  ExecutionPlan(plan::NamedPlan plan, int rank);

  const std::string& name() const noexcept;
  /// As Algorithm names it: "allreduce"; "custom" for collectives of users.
  std::string collective() const;
  int rank() const noexcept { return rank_; }
  /// The same plan for another rank, without a copy of it.
  ExecutionPlan forRank(int rank) const;
  /// The message sizes that it is meant for, in bytes, as Algorithm states them.
  std::size_t minMessageSize() const noexcept;
  std::size_t maxMessageSize() const noexcept;
  bool isInPlace() const noexcept;
  const plan::NamedPlan& plan() const noexcept { return *plan_; }
  /// A hash of all that is executed: equal plans have equal ones, on all ranks.
  std::uint64_t contentHash() const noexcept { return contentHash_; }

 private:
  std::shared_ptr<const plan::NamedPlan> plan_;
  int rank_;
  std::uint64_t contentHash_;
};

/// What an executor keeps of its calls, on this rank.
struct ExecutorMemory {
  std::size_t contexts;      ///< scratch, counters and channels of a plan
  std::size_t scratchBytes;  ///< of all contexts
  std::size_t stagingBytes;  ///< memory through which messages are copied whose buffers peers cannot map
  std::size_t buffers;       ///< pairs of an input and an output that other ranks reach
};

/// A kernel of the caller's that executes a plan among other things, by plan::executeStatic() of plan/static_role.hpp:
/// what Executor::execute() passes to its launch. The kernel's input and output are not always the call's, which peers
/// may not be able to map.
struct PlanKernel {
  const plan::ExecutionArgs& args;  ///< for plan::executeStatic(); the kernel takes it as a value
  void* input;                      ///< of this rank, which the kernel may write before the plan
  void* output;                     ///< of this rank, which the kernel may read after the plan
  int blocks;                       ///< of the grid: those that the rank has in the plan; they may be none
  int threads;                      ///< of a block: a multiple of 32, so many at most
  CUstream_st* stream;
};

/// Executes plans on the ranks of a communicator, on one host: on GPU streams, or on CPUs, where execute() returns when
/// the collective is done.
///
/// The first execute() of a plan with new parameters (stream, packet type, a larger message than before, and where the
/// plan reaches other ranks' inputs or outputs the buffers and their sizes) sets it up, together with the other ranks:
/// they all make that call, and parameters are new on all ranks or on none. Everything that calls keep belongs to one
/// executor, plan and stream, so that other executors and streams do not interfere. Other calls contact nobody, and
/// graphs can capture them. What is kept for a plan and a stream is bounded (docs/plans.md): what was not used for a
/// long time, and is in no captured graph, is released in a later set-up, and a call that needs it sets it up again.
///
/// In the first call of a plan with loops that has another number of iterations than before, the ranks agree whether
/// such calls may share memory. Of a Custom collective that gives some rank neither input nor output, every call first
/// states its size to that rank: it begins when all ranks have made it. Graphs can capture it too.
///
/// One thread at a time calls execute(), and all ranks make the same calls in the same order. On a GPU the calls of an
/// executor run one after another, on whichever streams they are, and those of several executors as those of several
/// Collectives do (docs/collectives.md): an executor reserves as many blocks as its plan with the most has.
class Executor {
 public:
  static constexpr std::size_t DefaultScratchBufferSize = std::size_t{128} << 20;

  /// All ranks pass the same. defaultScratchBufferSize: the largest scratch of a plan, in bytes. where: GPU streams, of
  /// the current device, or the CPU. Throws Error(InvalidUsage) for a null communicator.
  explicit Executor(std::shared_ptr<Communicator> communicator,
                    std::size_t defaultScratchBufferSize = DefaultScratchBufferSize, DeviceType where = DeviceType::GPU,
                    PlanCode code = PlanCode::Specialised);
  /// The kernels of all calls have ended, on all ranks.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Executes the plan: on a GPU enqueues it on `stream`. Sizes are in bytes: of the input and output as NCCL lays them
  /// out for the plan's collective. Buffers are aligned to their elements; those without bytes may be null. Buffers
  /// that other ranks reach must be memory that they can map (GpuBuffer, cudaMalloc; HostBuffer on CPUs), otherwise
  /// messages are copied through such memory. They must not be freed before reset(). op: of plans that reduce.
  ///
  /// Throws Error(InvalidUsage) before anything is enqueued if the arguments do not fit the plan, or its blocks do not
  /// fit on the GPUs at once, on all ranks where a set-up finds it; and what WaitMonitor::check throws if a wait of an
  /// earlier call has failed, on CPUs also of this one.
  void execute(int rank, const void* sendbuff, void* recvbuff, std::size_t sendBuffSize, std::size_t recvBuffSize,
               DataType dataType, const ExecutionPlan& plan, CUstream_st* stream,
               PacketType packetType = PacketType::LL16, ReduceOp op = ReduceOp::SUM);

  /// The same by a kernel of the caller's, which executes the plan by plan::executeStatic() between other code: launch
  /// is called once, when the call is set up, and enqueues that kernel on the stream, or on a CPU runs it to its end.
  /// It is not called for a message without bytes.
  ///
  /// What holds for a caller's accesses before and after a call (docs/plans.md) holds for the kernel's before and after
  /// executeStatic(): all threads of the rank have written the input before any of them begins the plan, and all have
  /// ended it before any reads the output. With several blocks that takes a barrier of the grid before and after
  /// (sync/grid_barrier.hpp), with one a barrier of the block. The plan is the one of `plan`; its scratch is the
  /// plan's.
  void execute(int rank, const void* sendbuff, void* recvbuff, std::size_t sendBuffSize, std::size_t recvBuffSize,
               DataType dataType, const ExecutionPlan& plan, CUstream_st* stream,
               const std::function<void(const PlanKernel&)>& launch, PacketType packetType = PacketType::LL16);

  /// Whether calls of the plan have made straight-line code of it. If not, it is interpreted: as PlanCode says, on
  /// CPUs, before the first call, in a capture, where NVRTC is missing, or because the code would be too long. Another
  /// reason is a defect; the log's warnings name all (MSCCLPP_DEBUG=WARN).
  bool isSpecialised(const ExecutionPlan& plan) const;

  /// What is kept now, until reset().
  ExecutorMemory memory() const;

  /// Throws what WaitMonitor::check throws if a wait of a call has failed.
  void check() const;

  /// Releases the memory that calls keep, their connections and the registrations of buffers; not the code of plans,
  /// nor the blocks that are reserved on the GPU. Called by all ranks when the kernels of all calls have ended, and
  /// captured graphs with such calls are not replayed any more.
  void reset();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mscclpp
