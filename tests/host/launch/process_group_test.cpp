// Ranks as processes: started by runRanks, or described by a launcher's environment variables.
//
// A case marked `skip` is the body of a rank: this program starts itself with that case's name.
#include "mscclpp/host/launch/process_group.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "tests/host/ranks.hpp"
#include "tests/test_case_filter.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;

namespace {

// What a call writes to stderr.
std::string captureStderr(const std::function<void()>& call) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  call();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::rewind(file);
  std::string text;
  for (int byte; (byte = std::fgetc(file)) != EOF;) text += static_cast<char>(byte);
  std::fclose(file);
  return text;
}

// Starts `numRanks` ranks that run the case `name`. Returns the printed failure of the job, or "" on success.
std::string launch(int numRanks, const std::string& name) {
  int status = -1;
  const std::string text = captureStderr([&] {
    status = runRanks(numRanks, {"ranks", "--no-skip", "--out=/dev/null", "--test-case=" + test::asFilter(name)},
                      [](ProcessGroup&) { throw std::logic_error("the launching process is no rank"); });
  });
  CHECK(status == (text.empty() ? 0 : 1));
  if (text.empty()) return "";
  const std::string program = std::string(program_invocation_short_name) + ": ";
  REQUIRE(text.starts_with(program));
  REQUIRE(text.ends_with('\n'));
  return text.substr(program.size(), text.size() - program.size() - 1);
}

// The rank's side of `launch`; exits the process with the result, as a tool's main does.
void runAsRank(const std::function<void(ProcessGroup&)>& body) {
  if (!ProcessGroup::fromEnvironment()) return;  // not started by a case of this file
  std::_Exit(runRanks(1, {}, body));
}

// Through this descriptor, which stays open across exec, a rank sends its process id to the test.
constexpr int pidPipe = 100;

void waitForKill() {
  while (true) ::pause();
}

}  // namespace

TEST_CASE("rank: all is well" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    if (group.localRank() != group.rank() || group.localSize() != group.size()) throw std::runtime_error("localRank");
    for (int connection = 0; connection < 2; ++connection) {
      auto bootstrap = group.connect(20);
      std::vector<int> ranks(group.size());
      ranks[group.rank()] = group.rank();
      bootstrap->allGather(ranks.data(), sizeof(int));
      for (int i = 0; i < group.size(); ++i) {
        if (ranks[i] != i) throw std::runtime_error("allGather");
      }
    }
  });
}

TEST_CASE("rank: one throws" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    auto bootstrap = group.connect(20);
    if (group.rank() == 1) throw Error("element 7 is wrong", ErrorCode::InternalError);
    bootstrap->barrier();
  });
}

TEST_CASE("rank: one throws a text with an escape sequence" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    if (group.rank() == 1) throw std::runtime_error("\x1b[31mred");
  });
}

TEST_CASE("rank: one throws and the others kill themselves as a result" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    auto bootstrap = group.connect(20);
    bootstrap->barrier();
    if (group.rank() == 2) throw std::runtime_error("the input file is missing");
    try {
      bootstrap->barrier();
    } catch (const Error&) {
      std::this_thread::sleep_for(100ms);  // well after the report of rank 2
      ::raise(SIGKILL);
    }
  });
}

TEST_CASE("rank: it starts programs" * doctest::skip()) {
  runAsRank([](ProcessGroup&) {
    // One that is itself started as a rank would write its report to whatever has the number of the launcher's pipe.
    if (std::getenv("MSCCLPP_REPORT_FD") != nullptr) throw std::runtime_error("they inherit the pipe's number");
  });
}

TEST_CASE("rank: one is killed" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    auto bootstrap = group.connect(20);
    if (group.rank() == 2) ::raise(SIGKILL);
    bootstrap->barrier();
  });
}

TEST_CASE("rank: one exits" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    if (group.rank() == 0) ::_exit(3);
  });
}

TEST_CASE("rank: one fails and one hangs" * doctest::skip()) {
  runAsRank([](ProcessGroup& group) {
    if (group.rank() == 0) throw std::runtime_error("a fault");
    ::signal(SIGTERM, SIG_IGN);
    waitForKill();
  });
}

TEST_CASE("rank: all report their process id and wait for ever" * doctest::skip()) {
  runAsRank([](ProcessGroup&) {
    const pid_t self = ::getpid();
    if (::write(pidPipe, &self, sizeof(self)) != sizeof(self)) throw std::runtime_error("the test does not listen");
    waitForKill();
  });
}

TEST_CASE("a program starts its own ranks, which find each other") {
  CHECK(launch(1, "rank: all is well") == "");
  CHECK(launch(4, "rank: all is well") == "");
}

TEST_CASE("the first failure is printed") {
  CHECK(launch(3, "rank: one throws") == "rank 1: element 7 is wrong (mscclpp failure: InternalError)");
  CHECK(launch(4, "rank: one is killed") == "rank 2: ended by signal 9 (Killed)");
  CHECK(launch(2, "rank: one exits") == "rank 0: ended with exit status 3");
  CHECK(launch(3, "rank: one throws and the others kill themselves as a result")
            .starts_with("rank 2: the input file is missing; then rank "));
  CHECK(launch(2, "rank: it starts programs") == "");
  CHECK(launch(2, std::string(1 << 20, 'x')).find(": the program could not be started: Argument list too long") !=
        std::string::npos);
  CHECK(launch(2, "rank: one throws a text with an escape sequence") == "rank 1: ?[31mred");
}

TEST_CASE("a launcher that inherited an ignored SIGCHLD detects the exit of its ranks") {
  ChildProcess launcher([] {
    ::alarm(40);
    ::signal(SIGCHLD, SIG_IGN);
    if (launch(2, "rank: all is well") != "") throw std::runtime_error("a job that succeeds");
    const std::string reason = launch(3, "rank: one is killed");
    if (reason != "rank 2: ended by signal 9 (Killed)") throw std::runtime_error(reason);
    if (::signal(SIGCHLD, SIG_IGN) != SIG_IGN) throw std::runtime_error("SIGCHLD is not restored");
  });
  CHECK(launcher.wait() == "");
}

TEST_CASE("a launcher whose program reaps all children still returns") {
  ChildProcess launcher([] {
    ::alarm(40);
    ::signal(SIGCHLD, [](int) {
      const int errorNumber = errno;
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      errno = errorNumber;
    });
    const std::string reason = launch(2, "rank: all is well");
    if (reason.find("another part of the launching program collected its exit status") == std::string::npos) {
      throw std::runtime_error(reason);
    }
  });
  CHECK(launcher.wait() == "");
}

TEST_CASE("under another launcher a rank prints what its body threw") {
  ChildProcess rank([] {
    ::setenv("RANK", "3", 1);
    ::setenv("WORLD_SIZE", "4", 1);
    int status = 0;
    const std::string text =
        captureStderr([&] { status = runRanks(4, {"x"}, [](ProcessGroup&) { throw std::runtime_error("a fault"); }); });
    throw std::runtime_error(std::to_string(status) + text.substr(text.find(':')));
  });
  CHECK(rank.wait() == "1: rank 3: a fault\n");
}

TEST_CASE("a process for which a launcher's variables contradict each other prints why, and returns 1") {
  ChildProcess rank([] {
    ::setenv("RANK", "5", 1);
    ::setenv("WORLD_SIZE", "2", 1);
    int status = 0;
    const std::string text = captureStderr([&] { status = runRanks(2, {"x"}, [](ProcessGroup&) {}); });
    throw std::runtime_error(std::to_string(status) + " " + text);
  });
  const std::string outcome = rank.wait();
  CAPTURE(outcome);
  CHECK(outcome.starts_with("1 "));
  CHECK(outcome.find("RANK") != std::string::npos);
}

TEST_CASE("ranks that neither exit nor handle SIGTERM are killed") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(launch(2, "rank: one fails and one hangs") == "rank 0: a fault");
  CHECK(test::secondsSince(start) < 12);
  // All were reaped.
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("ranks are killed when the process that started them exits") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ChildProcess launcher([&] {
    ::dup2(ends[1], pidPipe);
    launch(2, "rank: all report their process id and wait for ever");
  });
  ::close(ends[1]);
  std::vector<pid_t> ranks(2);
  for (pid_t& pid : ranks) REQUIRE(::read(ends[0], &pid, sizeof(pid)) == sizeof(pid));
  ::close(ends[0]);
  launcher.kill(SIGKILL);
  CHECK(launcher.wait() == "signal 9");
  for (pid_t pid : ranks) {
    // Exited, or a zombie that init has not reaped yet.
    const auto isAlive = [&] {
      const std::string stat = "/proc/" + std::to_string(pid) + "/stat";
      FILE* file = std::fopen(stat.c_str(), "r");
      char state = 'Z';
      if (file != nullptr) {
        if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
        std::fclose(file);
      }
      return state != 'Z' && state != 'X';
    };
    bool alive = true;
    for (int i = 0; i < 1000 && (alive = isAlive()); ++i) std::this_thread::sleep_for(20ms);
    CHECK_FALSE(alive);
  }
}

TEST_CASE("an invalid number of ranks is rejected") {
  CHECK_THROWS_AS(static_cast<void>(runRanks(0, {"x"}, [](ProcessGroup&) {})), Error);
  CHECK_THROWS_AS(static_cast<void>(runRanks(-1, {"x"}, [](ProcessGroup&) {})), Error);
  CHECK_THROWS_AS(static_cast<void>(runRanks(100000, {"x"}, [](ProcessGroup&) {})), Error);
  CHECK_THROWS_AS(static_cast<void>(runRanks(2, {}, [](ProcessGroup&) {})), Error);
}

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

void set(const Variables& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

// The result of fromEnvironment in a process with these variables: "launcher rank/size local/localSize".
std::string describeGroup(const Variables& variables) {
  ChildProcess child([&] {
    set(variables);
    const auto group = ProcessGroup::fromEnvironment();
    if (!group) throw std::runtime_error("none");
    const char* names[] = {"self", "torchrun", "mpi", "slurm"};
    throw std::runtime_error(std::string(names[static_cast<int>(group->launcher())]) + ' ' +
                             std::to_string(group->rank()) + '/' + std::to_string(group->size()) + ' ' +
                             std::to_string(group->localRank()) + '/' + std::to_string(group->localSize()));
  });
  return child.wait();
}

// Ranks with the environment of a launcher connect and exchange a value.
test::Outcomes connectWith(int numRanks, const std::function<Variables(int)>& variables) {
  return test::onProcesses(numRanks, [&](int rank) {
    set(variables(rank));
    auto group = ProcessGroup::fromEnvironment();
    auto bootstrap = group->connect(20);
    std::vector<int> ranks(numRanks);
    ranks[rank] = rank + 1;
    bootstrap->allGather(ranks.data(), sizeof(int));
    if (ranks[numRanks - 1] != numRanks || ranks[0] != 1) throw std::runtime_error("allGather");
  });
}

}  // namespace

TEST_CASE("launchers are detected by their variables") {
  CHECK(describeGroup({}) == "none");
  CHECK(describeGroup({{"RANK", "3"}}) == "none");
  CHECK(describeGroup({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "torchrun 3/8 1/2");
  CHECK(describeGroup({{"OMPI_COMM_WORLD_RANK", "5"},
                       {"OMPI_COMM_WORLD_SIZE", "8"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}) == "mpi 5/8 1/4");
  CHECK(describeGroup({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}}) ==
        "mpi 1/4 1/4");
  CHECK(describeGroup({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}) == "mpi 1/4 1/4");
  const Variables slurm = {{"SLURM_PROCID", "6"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "2"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                           {"SLURM_JOB_ID", "77"}};
  CHECK(describeGroup(slurm) == "none");  // a batch script, not a job step
  Variables step = slurm;
  step.emplace_back("SLURM_STEP_ID", "0");
  CHECK(describeGroup(step) == "slurm 6/8 2/4");
  const auto uneven = [&](const char* list, const char* node, const char* localRank) {
    return describeGroup({{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "9"},
                          {"SLURM_LOCALID", localRank},
                          {"SLURM_STEP_TASKS_PER_NODE", list},
                          {"SLURM_NODEID", node},
                          {"SLURM_STEP_ID", "0"}});
  };
  CHECK(uneven("3,4(x2)", "0", "2") == "slurm 6/9 2/3");
  CHECK(uneven("3,4(x2)", "1", "3") == "slurm 6/9 3/4");
  CHECK(uneven("4(x2),1", "2", "0") == "slurm 6/9 0/1");
  CHECK(uneven("4(x2)", "2", "0").find("SLURM_NODEID=2, but SLURM_STEP_TASKS_PER_NODE=4(x2) lists fewer nodes") !=
        std::string::npos);
  for (const char* list : {"4(x2", "4(2)", "4x", "4,", "4(x0)", ",4", "0", "4(x)"}) {
    CAPTURE(list);
    CHECK(uneven(list, "3", "0").find("is not a number") != std::string::npos);
  }
  step.emplace_back("PMI_RANK", "6");
  step.emplace_back("PMI_SIZE", "8");
  CHECK(describeGroup(step) == "slurm 6/8 2/4");
  CHECK(describeGroup({{"MSCCLPP_RANK", "0"}, {"MSCCLPP_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}}) ==
        "self 0/2 0/2");
}

TEST_CASE("variables that contradict each other are rejected") {
  CHECK(describeGroup({{"RANK", "8"}, {"WORLD_SIZE", "8"}}).find("contradict each other") != std::string::npos);
  CHECK(describeGroup({{"RANK", "x"}, {"WORLD_SIZE", "8"}}).find("RANK=x is not a number") != std::string::npos);
  CHECK(describeGroup({{"RANK", "0"}, {"WORLD_SIZE", "-1"}}).find("WORLD_SIZE=-1 is negative") != std::string::npos);
  CHECK(describeGroup({{"RANK", "1,2"}, {"WORLD_SIZE", "8"}}).find("RANK=1,2 is not a number") != std::string::npos);
  CHECK(describeGroup({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})
            .find("contradict each other") != std::string::npos);
}

TEST_CASE("ranks of another launcher on one host connect without further settings") {
  const std::string job = std::to_string(::getpid());
  CHECK(connectWith(3, [&](int rank) {
          return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                           {"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                           {"PMIX_NAMESPACE", job}};
        }) == test::Outcomes(3));
  CHECK(connectWith(2, [&](int rank) {
          return Variables{{"PMI_RANK", std::to_string(rank)}, {"PMI_SIZE", "2"}};
        }) == test::Outcomes(2));
}

TEST_CASE("ranks with only RANK and WORLD_SIZE connect, each started by its own wrapper") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const auto connectWrapped = [&](bool isEnvironmentOfWrapper) {
    return test::onProcesses(3, [&](int rank) {
      const std::string assignment = "RANK=" + std::to_string(rank);
      std::vector<std::string> arguments{"timeout", "40"};
      if (isEnvironmentOfWrapper) {
        set({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"}});
      } else {
        arguments.insert(arguments.end(), {"env", assignment, "WORLD_SIZE=3"});
      }
      arguments.insert(arguments.end(), {program, "--no-skip", "--out=/dev/null", "--test-case=rank: all is well"});
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      throw std::runtime_error("exec");
    });
  };
  CHECK(connectWrapped(true) == test::Outcomes(3));
  CHECK(connectWrapped(false) == test::Outcomes(3));
}

namespace {

// Runs a shell script in which `$rank` runs a rank that the environment describes. Returns whether it succeeded.
bool scriptSucceeds(const std::string& shell, const std::string& script) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string text = "rank='" + program + " --no-skip --out=/dev/null --test-case=rank:?all?is?well'\n" + script;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execlp(shell.c_str(), shell.c_str(), "-c", text.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  CHECK(::waitpid(pid, &status, 0) == pid);
  return status == 0;
}

}  // namespace

TEST_CASE("ranks with only RANK and WORLD_SIZE connect, each started by a subshell") {
  for (const std::string shell : {"bash", "sh"}) {
    CAPTURE(shell);
    CHECK(scriptSucceeds(shell, R"(
      ( RANK=0 WORLD_SIZE=2 $rank ) & first=$!
      ( RANK=1 WORLD_SIZE=2 $rank ) & second=$!
      wait $first && wait $second)"));
    // With `||` the subshell is a process of its own in every shell.
    CHECK(scriptSucceeds(shell, R"(
      ( RANK=0 WORLD_SIZE=3 $rank || exit 1 ) & first=$!
      ( export RANK=1 WORLD_SIZE=3; timeout 60 $rank || exit 1 ) & second=$!
      ( ( timeout 60 env RANK=2 WORLD_SIZE=3 $rank || exit 1 ) || exit 1 ) & third=$!
      wait $first && wait $second && wait $third)"));
    CHECK(scriptSucceeds(shell, R"(
      ( RANK=0 WORLD_SIZE=2 $rank || exit 1 ) & first=$!
      RANK=1 WORLD_SIZE=2 $rank & second=$!
      wait $first && wait $second)"));
  }
}

TEST_CASE("jobs of several subshells do not mix") {
  CHECK(scriptSucceeds("bash", R"(
    job() {
      RANK=$1 WORLD_SIZE=2 $rank & first=$!
      RANK=$((1 - $1)) WORLD_SIZE=2 $rank & second=$!
      wait $first && wait $second
    }
    jobs=
    for i in 1 2 3; do
      ( job 0 || exit 1 ) & jobs="$jobs $!"
      ( job 1 || exit 1 ) & jobs="$jobs $!"
    done
    for each in $jobs; do wait $each || exit 1; done)"));
}

TEST_CASE("connect waits for MSCCLPP_BOOTSTRAP_TIMEOUT") {
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = test::onProcesses(2, [&](int rank) {
    // They belong to different jobs and do not find each other.
    set({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MSCCLPP_BOOTSTRAP_TIMEOUT", "1"}});
    set({{"TORCHELASTIC_RUN_ID", std::to_string(::getpid())}});
    ProcessGroup::fromEnvironment()->connect();
  });
  CHECK(test::secondsBehind("not all ranks arrived within ", outcomes[0]) >= 1);
  CHECK(test::secondsBehind("did not find rank 0 on this host within ", outcomes[1]) >= 1);
  CHECK(test::secondsSince(start) < 15);
}

TEST_CASE("one timeout covers all steps of connect") {
  const std::string job = "late " + std::to_string(::getpid());
  const auto outcomes = test::onProcesses(2, [&](int rank) {
    set({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", job}});
    auto group = ProcessGroup::fromEnvironment();
    if (rank == 1) {
      // It starts late, receives the UniqueId, and fails before it connects.
      std::this_thread::sleep_for(3s);
      set({{"MSCCLPP_SOCKET_IFNAME", "=none"}});
      group->connect(60);
    }
    const auto start = std::chrono::steady_clock::now();
    try {
      group->connect(4);
    } catch (const Error& error) {
      const double reported = test::secondsBehind("within ", error.what());
      if (test::secondsSince(start) - reported > 2.5) throw std::runtime_error("it took longer than it reports");
      throw;
    }
  });
  CHECK(test::secondsBehind("not all ranks arrived within ", outcomes[0]) >= 4);
  CHECK(outcomes[0].find("rank 1 of 2 is missing") != std::string::npos);
  CHECK(outcomes[1].find("no network interface fits") != std::string::npos);
}

TEST_CASE("too low a limit on open files is reported at once") {
  for (const int spare : {5, 9, 13}) {
    CAPTURE(spare);
    const auto start = std::chrono::steady_clock::now();
    const std::string job = "spare " + std::to_string(spare) + " of " + std::to_string(::getpid());
    const auto outcomes = test::onProcesses(16, [&](int rank) {
      set({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "16"}, {"TORCHELASTIC_RUN_ID", job}});
      const auto limit = static_cast<rlim_t>(::dup(STDIN_FILENO) + spare);
      const rlimit limits{limit, limit};
      if (rank == 0) ::setrlimit(RLIMIT_NOFILE, &limits);
      ProcessGroup::fromEnvironment()->connect(rank == 0 ? 60 : 3);
    });
    CAPTURE(outcomes[0]);
    CHECK(outcomes[0].find("Too many open files: this process may have") != std::string::npos);
    CHECK(outcomes[0].find("raise the limit with ulimit -n") != std::string::npos);
    CHECK(test::secondsSince(start) < 30);
  }
}

TEST_CASE("ranks on several hosts connect at MASTER_ADDR, or at MSCCLPP_COMM_ID") {
  const int port = test::freePort();
  const auto torchrun = [&](int rank) {
    return Variables{
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},          {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},      {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::to_string(port - 1)}};
  };
  CHECK(connectWith(2, torchrun) == test::Outcomes(2));
  CHECK(connectWith(2, [&](int rank) {
          Variables variables = torchrun(rank);
          variables.emplace_back("MSCCLPP_COMM_ID", "127.0.0.1:" + std::to_string(port));
          variables.emplace_back("MSCCLPP_SECRET", "a secret of 16 characters or more");
          return variables;
        }) == test::Outcomes(2));
  const auto outcomes = connectWith(1, [](int) {
    return Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  });
  CHECK(outcomes[0].find("set MSCCLPP_COMM_ID") != std::string::npos);
}
