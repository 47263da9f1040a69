// What Collectives consists of: the choice of an algorithm, and how its calls run.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithm_choice.hpp"
#include "all_reduce_fp8.hpp"
#include "backend.hpp"
#include "fused_all_reduces.hpp"
#include "gpu_budget.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "kernel_launcher.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/copy_engine_mover.hpp"
#include "region_layout.hpp"
#include "regions.hpp"
#include "selection.hpp"

namespace mscclpp {

/// Each function does what that of Collectives of the same name does, unless it says otherwise.
class Collectives::State {
 public:
  State(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms wanted, int maxBlocks);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes);

  void run(const CollectiveCall& call);
  void run(std::span<const CollectiveCall> calls);
  void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, CUstream_st* stream);
  void allReduceRmsNorm(const RmsNormCall& call);
  void allReduceFp8(const kernels::Fp8Call& call, DataType type);
  void check() const { monitor_->check(); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  DeviceType deviceType() const noexcept { return onGpu_ ? DeviceType::GPU : DeviceType::CPU; }
  std::size_t memoryBytes() const;
  bool isConcurrent() const { return launcher_->isConcurrent(); }

  std::vector<std::string> algorithmsOf(CollectiveType collective) const { return choice_->namesOf(collective); }
  /// The selected algorithm, as an index in algorithmTable.
  std::size_t select(const CollectiveCall& call) const;
  bool supports(const CollectiveCall& call) const;
  bool takesRegisteredOutput(const CollectiveCall& call) const;

  std::shared_ptr<Trace> makeTrace(TraceOptions options) const;
  void record(std::shared_ptr<Trace> trace);
  bool recordsStages(const CollectiveCall& call) const;
  void setEpoch(std::uint64_t epoch);

 private:
  using Match = RegisteredBuffers::Match;

  /// Those wanted that the backends and links of all ranks can run. Collective; after the selection.
  std::vector<kernels::AlgorithmInUse> agreeOnAlgorithms(Algorithms wanted,
                                                         const mscclpp::detail::GroupAgreement& agreement) const;

  /// check(); then body(); then, on CPUs, where its calls have ended by now, check() again.
  template <class Body>
  void checked(const Body& body);

  /// Where the output of a call is registered, if the collective has algorithms for that. Every rank has an output
  /// then, and so finds it there or not alike.
  std::optional<Match> findOutput(const CollectiveCall& call) const;
  bool hasRegisteredOutput(const CollectiveCall& call) const {
    return call.output != nullptr && findOutput(call).has_value();
  }

  /// A valid call.
  void runOne(const CollectiveCall& call);
  /// Performs an exchange; `algorithm` is that of all messages, or empty.
  void transfer(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, CUstream_st* stream,
                const std::string& algorithm);
  /// Performs the first of valid calls, together with those after it that can be joined with it. Returns how many.
  std::size_t runFirst(std::span<const CollectiveCall> calls);
  /// Performs reductions that countOfJoinedReductions() has counted by one kernel.
  void runJoinedReductions(std::span<const CollectiveCall> reductions);
  /// Performs moves that countOfJoinedMoves() has counted. All ranks know how long they are, so that those of a pair of
  /// ranks are one message.
  void runJoinedMoves(std::span<const CollectiveCall> moves);
  /// Runs a valid call by copy engines.
  void moveTo(const Match& output, const CollectiveCall& call, std::size_t algorithm);
  /// Runs a valid all-reduce: a kernel reduces this rank's part, which copy engines then move to all ranks. Parts are
  /// of equal length; the few elements that are left are reduced by every rank.
  void reduceAndMoveTo(const Match& output, const CollectiveCall& call, std::size_t algorithm);

  const mscclpp::detail::OwnerProcess owner_;  ///< a forked child writes no trace
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  int ranks_;
  bool onGpu_;
  const kernels::Backend& backend_;
  std::optional<kernels::Selection> selection_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::unique_ptr<kernels::GpuBudget::Share> share_;  ///< null on CPUs
  std::optional<kernels::Regions> regions_;
  std::optional<kernels::AlgorithmChoice> choice_;
  std::optional<kernels::KernelLauncher> launcher_;
  std::optional<CopyEngineMover> mover_;
  std::optional<kernels::FusedAllReduces> fused_;
  RegisteredBuffers registered_;
  std::shared_ptr<Trace> environmentTrace_;  ///< if the environment asks for one
};

}  // namespace mscclpp
