// Ranks as processes: started by runRanks, or found in the environment of a launcher.
//
// A case marked `skip` is the body of a rank: this program starts itself with that case's name.
#include "mscclpp/host/process_group.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;

namespace {

// Starts `numRanks` ranks that run the case `name`; returns what runRanks threw.
std::string launch(int numRanks, const std::string& name) {
  try {
    const int status = runRanks(numRanks, {"ranks", "--no-skip", "--out=/dev/null", "--test-case=" + name},
                                [](ProcessGroup&) { throw std::logic_error("the launching process is no rank"); });
    CHECK(status == 0);
    return "";
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    return error.what();
  }
}

// The other end of `launch`; ends the process with the result, as a tool's main does.
void asRank(const std::function<void(ProcessGroup&)>& body) {
  if (!ProcessGroup::fromEnvironment()) return;  // not started by a case of this file
  std::_Exit(runRanks(1, {}, body));
}

// Where a rank tells the test its process id: a descriptor that stays open across exec.
constexpr int pidPipe = 100;

void waitForDeath() {
  while (true) ::pause();
}

}  // namespace

TEST_CASE("rank: all is well" * doctest::skip()) {
  asRank([](ProcessGroup& group) {
    if (group.localRank() != group.rank() || group.localSize() != group.size()) throw std::runtime_error("the place");
    for (int meeting = 0; meeting < 2; ++meeting) {
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
  asRank([](ProcessGroup& group) {
    auto bootstrap = group.connect(20);
    if (group.rank() == 1) throw Error("element 7 is wrong", ErrorCode::InternalError);
    bootstrap->barrier();
  });
}

TEST_CASE("rank: one is killed" * doctest::skip()) {
  asRank([](ProcessGroup& group) {
    auto bootstrap = group.connect(20);
    if (group.rank() == 2) ::raise(SIGKILL);
    bootstrap->barrier();
  });
}

TEST_CASE("rank: one exits" * doctest::skip()) {
  asRank([](ProcessGroup& group) {
    if (group.rank() == 0) ::_exit(3);
  });
}

TEST_CASE("rank: one fails and one hangs" * doctest::skip()) {
  asRank([](ProcessGroup& group) {
    if (group.rank() == 0) throw std::runtime_error("a fault");
    ::signal(SIGTERM, SIG_IGN);
    waitForDeath();
  });
}

TEST_CASE("rank: all say who they are and wait for ever" * doctest::skip()) {
  asRank([](ProcessGroup&) {
    const pid_t self = ::getpid();
    if (::write(pidPipe, &self, sizeof(self)) != sizeof(self)) throw std::runtime_error("nobody listens");
    waitForDeath();
  });
}

TEST_CASE("a program starts its own ranks, which find each other") {
  CHECK(launch(1, "rank: all is well") == "");
  CHECK(launch(4, "rank: all is well") == "");
}

TEST_CASE("the reason that came first is brought back") {
  CHECK(launch(3, "rank: one throws") ==
        "rank 1: element 7 is wrong (mscclpp failure: InternalError) (mscclpp failure: RemoteError)");
  CHECK(launch(4, "rank: one is killed") == "rank 2: ended by signal 9 (Killed) (mscclpp failure: RemoteError)");
  CHECK(launch(2, "rank: one exits") == "rank 0: ended with exit status 3 (mscclpp failure: RemoteError)");
}

TEST_CASE("ranks that neither end nor listen are killed") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(launch(2, "rank: one fails and one hangs") == "rank 0: a fault (mscclpp failure: RemoteError)");
  CHECK(test::secondsSince(start) < 12);
  // All were reaped.
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("ranks die with the process that started them") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ChildProcess launcher([&] {
    ::dup2(ends[1], pidPipe);
    launch(2, "rank: all say who they are and wait for ever");
  });
  ::close(ends[1]);
  std::vector<pid_t> ranks(2);
  for (pid_t& pid : ranks) REQUIRE(::read(ends[0], &pid, sizeof(pid)) == sizeof(pid));
  ::close(ends[0]);
  launcher.kill(SIGKILL);
  CHECK(launcher.wait() == "signal 9");
  for (pid_t pid : ranks) {
    // Gone, or a zombie that the system's first process has yet to reap.
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
    for (int i = 0; i < 100 && (alive = isAlive()); ++i) std::this_thread::sleep_for(20ms);
    CHECK_FALSE(alive);
  }
}

TEST_CASE("a senseless number of ranks is refused") {
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

// What fromEnvironment makes of the variables, in a process that has them: "launcher rank/size local/localSize".
std::string placeWith(const Variables& variables) {
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

// Ranks as a launcher would start them meet, and exchange a word.
test::Outcomes meetWith(int numRanks, const std::function<Variables(int)>& variables) {
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

TEST_CASE("launchers are recognised by their variables") {
  CHECK(placeWith({}) == "none");
  CHECK(placeWith({{"RANK", "3"}}) == "none");
  CHECK(placeWith({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "torchrun 3/8 1/2");
  CHECK(placeWith({{"OMPI_COMM_WORLD_RANK", "5"},
                   {"OMPI_COMM_WORLD_SIZE", "8"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}) == "mpi 5/8 1/4");
  CHECK(placeWith({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}}) ==
        "mpi 1/4 1/4");
  CHECK(placeWith({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}) == "mpi 1/4 1/4");
  const Variables slurm = {{"SLURM_PROCID", "6"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "2"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                           {"SLURM_JOB_ID", "77"}};
  CHECK(placeWith(slurm) == "none");  // a batch script, not a step
  Variables step = slurm;
  step.emplace_back("SLURM_STEP_ID", "0");
  CHECK(placeWith(step) == "slurm 6/8 2/4");
  step.emplace_back("PMI_RANK", "6");
  step.emplace_back("PMI_SIZE", "8");
  CHECK(placeWith(step) == "slurm 6/8 2/4");
  CHECK(placeWith({{"MSCCLPP_RANK", "0"}, {"MSCCLPP_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}}) ==
        "self 0/2 0/2");
}

TEST_CASE("variables that contradict each other are refused") {
  CHECK(placeWith({{"RANK", "8"}, {"WORLD_SIZE", "8"}}).find("contradict each other") != std::string::npos);
  CHECK(placeWith({{"RANK", "x"}, {"WORLD_SIZE", "8"}}).find("RANK=x is no number") != std::string::npos);
  CHECK(placeWith({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})
            .find("contradict each other") != std::string::npos);
}

TEST_CASE("ranks of a foreign launcher on one host meet without further settings") {
  const std::string job = std::to_string(::getpid());
  CHECK(meetWith(3, [&](int rank) {
          return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                           {"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                           {"PMIX_NAMESPACE", job}};
        }) == test::Outcomes(3));
  CHECK(meetWith(2, [&](int rank) {
          return Variables{{"PMI_RANK", std::to_string(rank)}, {"PMI_SIZE", "2"}};
        }) == test::Outcomes(2));
}

TEST_CASE("ranks on several hosts meet at MASTER_ADDR, or at MSCCLPP_COMM_ID") {
  const int port = test::freePort();
  const auto torchrun = [&](int rank) {
    return Variables{
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},          {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},      {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::to_string(port - 1)}};
  };
  CHECK(meetWith(2, torchrun) == test::Outcomes(2));
  CHECK(meetWith(2, [&](int rank) {
          Variables variables = torchrun(rank);
          variables.emplace_back("MSCCLPP_COMM_ID", "127.0.0.1:" + std::to_string(port));
          variables.emplace_back("MSCCLPP_SECRET", "a secret of 16 characters or more");
          return variables;
        }) == test::Outcomes(2));
  const auto outcomes = meetWith(1, [](int) {
    return Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  });
  CHECK(outcomes[0].find("set MSCCLPP_COMM_ID") != std::string::npos);
}
