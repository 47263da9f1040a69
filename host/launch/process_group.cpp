#include "mscclpp/host/launch/process_group.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <system_error>

#include "host/bootstrap/unique_id.hpp"
#include "host/launch/job_starters.hpp"
#include "host/launch/rank_launcher.hpp"
#include "host/launch/unique_id_exchange.hpp"
#include "host/net/socket_address.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

using detail::Deadline;

namespace {

std::string readText(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

[[noreturn]] void throwNotANumber(const char* name, const std::string& text) {
  throw Error(std::string(name) + "=" + text + " is not a number" +
                  (text.find_first_of(",(") != std::string::npos ? ", or not a list of numbers" : "") +
                  "; it is set by the launcher, so check what changed it",
              ErrorCode::InvalidUsage);
}

// The first of several variables that is set, as a number.
std::optional<int> readNumber(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string text = readText(name);
    if (text.empty()) continue;
    int number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status != std::errc() || end != text.data() + text.size()) throwNotANumber(name, text);
    if (number < 0) {
      throw Error(std::string(name) + "=" + text + " is negative; it is set by the launcher, so check what changed it",
                  ErrorCode::InvalidUsage);
    }
    return number;
  }
  return std::nullopt;
}

// The entry of a node in Slurm's list of the numbers of tasks of all nodes: "4(x2),3" is 4, 4, 3.
std::optional<int> readTasksOfNode(const char* listName, const char* nodeName) {
  const std::string text = readText(listName);
  if (text.empty()) return std::nullopt;
  int nodes = readNumber({nodeName}).value_or(0) + 1;
  const char* next = text.data();
  const char* const last = next + text.size();
  const auto parse = [&](int& number) {
    const auto [end, status] = std::from_chars(next, last, number);
    if (status != std::errc() || number < 1) throwNotANumber(listName, text);
    next = end;
  };
  while (true) {
    int tasks = 0, repetitions = 1;
    parse(tasks);
    if (next != last && *next == '(') {
      if (last - next < 4 || next[1] != 'x') throwNotANumber(listName, text);
      next += 2;
      parse(repetitions);
      if (next == last || *next++ != ')') throwNotANumber(listName, text);
    }
    nodes -= repetitions;
    if (nodes <= 0) return tasks;
    if (next == last) {
      throw Error(std::string("the launcher's variables contradict each other: ") + nodeName + "=" +
                      readText(nodeName) + ", but " + listName + "=" + text + " lists fewer nodes",
                  ErrorCode::InvalidUsage);
    }
    if (*next++ != ',') throwNotANumber(listName, text);
  }
}

using VariableNames = std::initializer_list<const char*>;

struct LauncherVariables {
  ProcessGroup::Launcher launcher;
  VariableNames required;                          // besides rank and size
  VariableNames rank, size, localRank, localSize;  // localSize: of Slurm, the list of all nodes and this node's index
  VariableNames job;                               // together these identify one job of the launcher
};

using Launcher = ProcessGroup::Launcher;

// MPICH's mpirun may start its ranks inside a Slurm step, and srun may set PMI variables: the launcher that also sets
// local ranks is the one that started this process. A Slurm batch script has the variables of a rank without being one;
// only a step has ranks.
const LauncherVariables launcherTable[] = {
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
     {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {Launcher::Mpi, {}, {"PMI_RANK"}, {"PMI_SIZE"}, {}, {}, {"PMI_JOBID"}},
};

bool isSet(const char* name) {
  return !readText(name).empty();
}

std::string firstSet(VariableNames names) {
  const auto* const name = std::find_if(names.begin(), names.end(), isSet);
  return name != names.end() ? *name : "";
}

// Names of a job that its launcher gave none: one for each process that may have started all ranks.
std::vector<std::string> namesByStarter(const LauncherVariables& variables) {
  const std::string rankVariable = *variables.rank.begin();
  std::error_code ignored;
  const std::string pidNamespace = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::vector<std::string> names;
  for (const pid_t starter : detail::findJobStarters(rankVariable + '=' + readText(rankVariable.c_str()))) {
    names.push_back("parent " + std::to_string(starter) + " in " + pidNamespace);
  }
  return names;
}

}  // namespace

std::optional<ProcessGroup> ProcessGroup::fromEnvironment() {
  for (const LauncherVariables& variables : launcherTable) {
    if (!std::all_of(variables.required.begin(), variables.required.end(), isSet)) continue;
    const auto rank = readNumber(variables.rank), size = readNumber(variables.size);
    if (!rank || !size) continue;
    ProcessGroup group(variables.launcher, *rank, *size);
    const auto localRank = readNumber(variables.localRank);
    const auto localSize = variables.launcher == Launcher::Slurm
                               ? readTasksOfNode(variables.localSize.begin()[0], variables.localSize.begin()[1])
                               : readNumber(variables.localSize);
    if (localRank && localSize) {
      group.localRank_ = *localRank;
      group.localSize_ = *localSize;
      group.hasLocalRank_ = true;
    }
    if (group.rank_ >= group.size_ || group.localRank_ >= group.localSize_ || group.localSize_ > group.size_) {
      throw Error("the launcher's variables contradict each other: " + firstSet(variables.rank) + "=" +
                      std::to_string(group.rank_) + ", " + firstSet(variables.size) + "=" +
                      std::to_string(group.size_) + ", local rank " + std::to_string(group.localRank_) + " of " +
                      std::to_string(group.localSize_),
                  ErrorCode::InvalidUsage);
    }
    std::string job;
    for (const char* name : variables.job) job += readText(name) + '/';
    // Jobs whose launcher gives them no name are distinguished by the process that started the ranks.
    const bool hasName = job.find_first_not_of('/') != std::string::npos;
    group.jobs_ = hasName ? std::vector{job} : namesByStarter(variables);
    return group;
  }
  return std::nullopt;
}

std::shared_ptr<TcpBootstrap> ProcessGroup::connect() {
  return connect(std::chrono::ceil<std::chrono::seconds>(env()->bootstrapTimeout).count());
}

std::shared_ptr<TcpBootstrap> ProcessGroup::connect(std::int64_t timeoutSec) {
  const Deadline deadline = Deadline::afterSeconds(timeoutSec);
  auto bootstrap = std::make_shared<TcpBootstrap>(rank_, size_);
  const std::string masterAddress = readText("MASTER_ADDR"), masterPort = readText("MASTER_PORT");
  const bool hasMaster = !masterAddress.empty() && !masterPort.empty();
  const bool isSingleHost = hasLocalRank_ ? localSize_ == size_ : !hasMaster;
  if (!env()->commId.empty()) {
    bootstrap->initializeUntil(deadline, env()->commId);
  } else if (isSingleHost) {
    std::vector<std::string> jobs = jobs_;
    for (std::string& job : jobs) job += '#' + std::to_string(connectCount_);
    ++connectCount_;
    if (rank_ == 0) {
      const auto loopback = detail::chooseLocalAddress("=lo", env()->socketFamily);
      const UniqueId uniqueId = detail::toUniqueId({detail::reservePort(loopback), detail::makeSecret()});
      detail::serveUniqueId(jobs, uniqueId, size_, deadline);
      bootstrap->initializeUntil(deadline, uniqueId);
    } else {
      bootstrap->initializeUntil(deadline, detail::fetchUniqueId(jobs, rank_, deadline));
    }
  } else if (hasMaster) {
    // The launcher's own store listens on MASTER_PORT itself.
    const std::string host = masterAddress.find(':') == std::string::npos ? masterAddress : '[' + masterAddress + ']';
    const int port = *readNumber({"MASTER_PORT"}) + 1;
    if (port > 65535) {
      throw Error("the ranks connect at the port after MASTER_PORT, and there is none after " + masterPort +
                      ": choose a smaller one, or set MSCCLPP_COMM_ID to ip:port of the host of rank 0",
                  ErrorCode::InvalidUsage);
    }
    bootstrap->initializeUntil(deadline, host + ':' + std::to_string(port));
  } else {
    throw Error(
        "the ranks are on several hosts and have no rendezvous address: set MSCCLPP_COMM_ID to ip:port of the host of "
        "rank 0, and MSCCLPP_SECRET, the same on every rank",
        ErrorCode::InvalidUsage);
  }
  return bootstrap;
}

int runRanks(int numRanks, const std::vector<std::string>& arguments, const std::function<void(ProcessGroup&)>& body) {
  std::optional<ProcessGroup> group;
  try {
    group = ProcessGroup::fromEnvironment();
  } catch (const std::exception& error) {
    return detail::reportFailure(error);
  }
  if (!group) return detail::launchRanks(numRanks, arguments);
  return detail::runRank(group->rank(), [&] { body(*group); });
}

}  // namespace mscclpp
