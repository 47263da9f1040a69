// How a program becomes the ranks of a job: it starts them itself, or torchrun, mpirun or srun has started them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

/// This process as one rank of a job.
class ProcessGroup {
 public:
  enum class Launcher { Self, Torchrun, Mpi, Slurm };

  /// Reads the launcher's variables; empty if no launcher started this process as a rank. In order of precedence:
  /// MSCCLPP_RANK and MSCCLPP_WORLD_SIZE (set by runRanks, or by the user together with MSCCLPP_COMM_ID), torchrun's
  /// RANK and WORLD_SIZE, Open MPI's OMPI_COMM_WORLD_*, MPICH's PMI_*, Slurm's SLURM_PROCID within a step. Throws
  /// Error(InvalidUsage) if they contradict each other.
  static std::optional<ProcessGroup> fromEnvironment();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// This rank's index among the ranks on this host, and their number, as set by the launcher; of the whole job if the
  /// launcher sets neither.
  int localRank() const noexcept { return localRank_; }
  int localSize() const noexcept { return localSize_; }
  Launcher launcher() const noexcept { return launcher_; }

  /// Connects to the other ranks. Collective: each rank calls it, as often as the others. The rendezvous is at
  /// MSCCLPP_COMM_ID ("ip:port") if that is set; else, on a single host, by a UniqueId that rank 0 passes to processes
  /// of the same user; else at MASTER_ADDR and the port after MASTER_PORT. Across hosts MSCCLPP_SECRET must be set (see
  /// TcpBootstrap). The timeout is MSCCLPP_BOOTSTRAP_TIMEOUT, or `timeoutSec` seconds. Throws Error(Timeout), which
  /// names the missing ranks, and what TcpBootstrap::initialize throws.
  std::shared_ptr<TcpBootstrap> connect();
  std::shared_ptr<TcpBootstrap> connect(std::int64_t timeoutSec);

 private:
  ProcessGroup(Launcher launcher, int rank, int size) noexcept
      : launcher_(launcher), rank_(rank), size_(size), localRank_(rank), localSize_(size) {}

  Launcher launcher_;
  int rank_;
  int size_;
  int localRank_;
  int localSize_;
  bool hasLocalRank_ = false;      // whether the launcher has set which ranks share a host
  std::vector<std::string> jobs_;  // names of the job on this host; any two ranks have one in common
  int connectCount_ = 0;
};

/// Runs `body` on every rank, and returns the exit status for `main`. In a process that a launcher started as a rank,
/// it calls `body`. Otherwise it starts this program `numRanks` times with `arguments` (argv, the program's name
/// first); each of these processes calls runRanks again, as a rank. It returns when all have ended and been reaped.
///
/// If a rank fails, the others have a few seconds to detect it and are then killed. The status is then 1, and the
/// process that started the ranks prints the first failed rank and the reason to stderr: the exception of its body, its
/// signal or its exit status. Under another launcher each rank prints the exception of its own body, and returns 1. So
/// does a process for which the variables of a launcher contradict each other.
/// Ranks are killed when the process or the thread that started them ends. Throws Error(InvalidUsage) for a number of
/// ranks below 1 or above 4096, or no arguments.
[[nodiscard]] int runRanks(int numRanks, const std::vector<std::string>& arguments,
                           const std::function<void(ProcessGroup&)>& body);

}  // namespace mscclpp
