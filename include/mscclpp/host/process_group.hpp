// How a program gets its ranks: it starts them itself, or torchrun, mpirun or srun has started them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp {

/// This process as one rank of a job that somebody started.
class ProcessGroup {
 public:
  enum class Launcher { Self, Torchrun, Mpi, Slurm };

  /// Reads the launcher's variables; nothing if no launcher started this process as a rank. In order of precedence:
  /// MSCCLPP_RANK and MSCCLPP_WORLD_SIZE (set by runRanks, or by hand together with MSCCLPP_COMM_ID), torchrun's RANK
  /// and WORLD_SIZE, Open MPI's OMPI_COMM_WORLD_*, MPICH's PMI_*, Slurm's SLURM_PROCID within a step.
  /// Throws Error(InvalidUsage) if they contradict each other.
  static std::optional<ProcessGroup> fromEnvironment();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Place and number of ranks on this host, as the launcher says; the whole job if it does not say.
  int localRank() const noexcept { return localRank_; }
  int localSize() const noexcept { return localSize_; }
  Launcher launcher() const noexcept { return launcher_; }

  /// Meets the other ranks; each rank calls it, as often as the others. Where to meet: MSCCLPP_COMM_ID ("ip:port") if
  /// set; else, on a single host, a token that rank 0 hands to processes of the same user; else MASTER_ADDR and the
  /// port after MASTER_PORT. Across hosts MSCCLPP_SECRET must be set (see TcpBootstrap).
  std::shared_ptr<TcpBootstrap> connect(std::int64_t timeoutSec = 30);

 private:
  ProcessGroup(Launcher launcher, int rank, int size) noexcept
      : launcher_(launcher), rank_(rank), size_(size), localRank_(rank), localSize_(size) {}

  Launcher launcher_;
  int rank_;
  int size_;
  int localRank_;
  int localSize_;
  bool placeKnown_ = false;  // whether the launcher said which ranks share a host
  std::string job_;          // what tells this job from others on the host
  int meetings_ = 0;
};

/// Runs `body` on every rank, and returns what `main` is to return. In a process that a launcher started as a rank, it
/// calls `body`. Otherwise it starts this program `numRanks` times with `arguments` (argv, the program's name first);
/// each of them comes here again as a rank. It returns when all have ended.
///
/// If a rank fails, the others have a few seconds to notice and are then killed; all are reaped. The process that
/// started them throws Error(RemoteError) with the rank and the reason that came first: what its body threw, its signal
/// or its exit status. In a rank that it started nothing is thrown: the reason has gone to that process, and the
/// result is 1. Under a foreign launcher, what the body throws is thrown on. Ranks die with the process, and with the
/// thread, that started them.
[[nodiscard]] int runRanks(int numRanks, const std::vector<std::string>& arguments,
                           const std::function<void(ProcessGroup&)>& body);

}  // namespace mscclpp
