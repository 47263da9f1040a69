#include "mscclpp/host/process_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <initializer_list>

#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "rank_launcher.hpp"
#include "socket_address.hpp"
#include "token_exchange.hpp"
#include "unique_id.hpp"

namespace mscclpp {

using detail::Deadline;

namespace {

std::string readText(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The first of several variables that is set, as a number.
std::optional<int> readNumber(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string text = readText(name);
    if (text.empty()) continue;
    int number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    // Slurm counts tasks by node: "4(x2)", "4,3".
    const bool whole = end == text.data() + text.size() || *end == '(' || *end == ',';
    if (status != std::errc() || !whole || number < 0) {
      throw Error(std::string(name) + "=" + text + " is no number: the launcher's environment is damaged",
                  ErrorCode::InvalidUsage);
    }
    return number;
  }
  return std::nullopt;
}

using Names = std::initializer_list<const char*>;

struct Variables {
  ProcessGroup::Launcher launcher;
  Names required;  // besides rank and size
  Names rank, size, localRank, localSize;
  Names job;  // together these tell one job of the launcher from another
};

using Launcher = ProcessGroup::Launcher;

// MPICH's mpirun may start its ranks inside a Slurm step, and srun may speak PMI: who names local ranks is the closer.
// A Slurm batch script has the variables of a rank without being one; only a step has ranks.
const Variables known[] = {
    {Launcher::Self,
     {},
     {"MSCCLPP_RANK"},
     {"MSCCLPP_WORLD_SIZE"},
     {"MSCCLPP_LOCAL_RANK"},
     {"MSCCLPP_LOCAL_SIZE"},
     {"MSCCLPP_JOB"}},
    {Launcher::Torchrun,
     {},
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}},
    {Launcher::Mpi,
     {},
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {Launcher::Mpi,
     {"MPI_LOCALRANKID"},
     {"PMI_RANK"},
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID"},
     {"MPI_LOCALNRANKS"},
     {"PMI_JOBID"}},
    {Launcher::Slurm,
     {"SLURM_STEP_ID"},
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {"SLURM_STEP_TASKS_PER_NODE"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {Launcher::Mpi, {}, {"PMI_RANK"}, {"PMI_SIZE"}, {}, {}, {"PMI_JOBID"}},
};

bool isSet(const char* name) {
  return !readText(name).empty();
}

}  // namespace

std::optional<ProcessGroup> ProcessGroup::fromEnvironment() {
  for (const Variables& variables : known) {
    if (!std::all_of(variables.required.begin(), variables.required.end(), isSet)) continue;
    const auto rank = readNumber(variables.rank), size = readNumber(variables.size);
    if (!rank || !size) continue;
    ProcessGroup group(variables.launcher, *rank, *size);
    const auto localRank = readNumber(variables.localRank), localSize = readNumber(variables.localSize);
    if (localRank && localSize) {
      group.localRank_ = *localRank;
      group.localSize_ = *localSize;
      group.placeKnown_ = true;
    }
    if (group.rank_ >= group.size_ || group.localRank_ >= group.localSize_ || group.localSize_ > group.size_) {
      throw Error(std::string("the launcher's variables contradict each other: ") + *variables.rank.begin() + "=" +
                      std::to_string(group.rank_) + ", " + *variables.size.begin() + "=" + std::to_string(group.size_) +
                      ", local rank " + std::to_string(group.localRank_) + " of " + std::to_string(group.localSize_),
                  ErrorCode::InvalidUsage);
    }
    for (const char* name : variables.job) group.job_ += readText(name) + '/';
    // Launchers that name no job are told apart by the process that started the ranks.
    if (group.job_.find_first_not_of('/') == std::string::npos) group.job_ = "parent " + std::to_string(::getppid());
    return group;
  }
  return std::nullopt;
}

std::shared_ptr<TcpBootstrap> ProcessGroup::connect(std::int64_t timeoutSec) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(timeoutSec));
  auto bootstrap = std::make_shared<TcpBootstrap>(rank_, size_);
  const std::string masterAddress = readText("MASTER_ADDR"), masterPort = readText("MASTER_PORT");
  const bool hasMaster = !masterAddress.empty() && !masterPort.empty();
  const bool oneHost = placeKnown_ ? localSize_ == size_ : !hasMaster;
  if (!env()->commId.empty()) {
    bootstrap->initialize(env()->commId, timeoutSec);
  } else if (oneHost) {
    const std::string meeting = job_ + '#' + std::to_string(meetings_++);
    if (rank_ == 0) {
      const auto loopback = detail::chooseLocalAddress("=lo", env()->socketFamily);
      const UniqueId token = detail::toUniqueId({detail::reservePort(loopback), detail::makeSecret()});
      detail::offerToken(meeting, token, size_, deadline);
      bootstrap->initialize(token, timeoutSec);
    } else {
      bootstrap->initialize(detail::takeToken(meeting, rank_, deadline), timeoutSec);
    }
  } else if (hasMaster) {
    // The launcher's own store listens on MASTER_PORT itself.
    const std::string host = masterAddress.find(':') == std::string::npos ? masterAddress : '[' + masterAddress + ']';
    const int port = *readNumber({"MASTER_PORT"}) + 1;
    if (port > 65535) {
      throw Error("the ranks meet at the port after MASTER_PORT, and there is none after " + masterPort +
                      ": choose a smaller one, or set MSCCLPP_COMM_ID to ip:port of the host of rank 0",
                  ErrorCode::InvalidUsage);
    }
    bootstrap->initialize(host + ':' + std::to_string(port), timeoutSec);
  } else {
    throw Error(
        "the ranks are on several hosts and do not know where to meet: set MSCCLPP_COMM_ID to ip:port of the "
        "host of rank 0, and MSCCLPP_SECRET, the same on every rank",
        ErrorCode::InvalidUsage);
  }
  return bootstrap;
}

int runRanks(int numRanks, const std::vector<std::string>& arguments, const std::function<void(ProcessGroup&)>& body) {
  auto group = ProcessGroup::fromEnvironment();
  if (!group) {
    detail::launchRanks(numRanks, arguments);
    return 0;
  }
  if (group->launcher() == ProcessGroup::Launcher::Self) {
    return detail::runLaunchedRank(group->rank(), [&] { body(*group); });
  }
  body(*group);
  return 0;
}

}  // namespace mscclpp
