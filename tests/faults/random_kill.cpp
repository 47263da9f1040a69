// Repeatedly kills a random rank at a random moment of a random collective: each survivor must throw an error that
// names it within 5 s, leak nothing, and initialize again in the same process with the other survivors.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "controller_messages.hpp"
#include "mscclpp/host/base/error.hpp"
#include "rank.hpp"
#include "tools/command_line/command_line.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::faults;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto setupLimit = 60s;
constexpr auto detectionLimit = 5s;
constexpr auto cleanupLimit = 30s;
constexpr int maxKillDelayMs = 60;  // milliseconds after the first call

struct Options {
  int rounds = 20;
  int ranks = 4;
  unsigned seed = std::random_device()();
  std::string device = "cpu";
};

/// One rank's process, which may run many generations.
struct Process {
  int slot;  ///< which GPU
  pid_t pid;
  int socket;
  std::array<int, 3> resources{-1, -1, -1};  ///< at the end of its last generation
};

class Controller {
 public:
  explicit Controller(const Options& options) : options_(options), random_(options.seed) {}
  ~Controller() {
    while (!processes_.empty()) killProcess(processes_.size() - 1);
  }

  void round() {
    // In half of the rounds the survivors continue without a replacement.
    const bool isRefilled = processes_.size() < 2 || random_() % 2 == 0;
    for (int slot = 0; isRefilled && slot < options_.ranks; ++slot) spawnMissing(slot);
    startGeneration();
    const auto killedRank = random_() % processes_.size();
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (maxKillDelayMs * 1000)));
    const auto killed = Clock::now();
    killProcess(killedRank);
    const std::string name = "rank " + std::to_string(killedRank) + " failed";
    for (Process& process : processes_) {
      const Message failed = expect(process, MessageType::Failed, killed + detectionLimit);
      slowest_ = std::max(slowest_, std::chrono::duration<double>(Clock::now() - killed).count());
      calls_ += failed.calls;
      if (failed.code != static_cast<int>(ErrorCode::RemoteError) || std::string(failed.text).find(name) != 0) {
        fail(process, std::string("did not name rank ") + std::to_string(killedRank) + ": " + failed.text);
      }
    }
    for (Process& process : processes_) checkClean(process);
  }

  double slowest() const { return slowest_; }
  std::uint64_t calls() const { return calls_; }

 private:
  void spawnMissing(int slot) {
    const auto next = std::find_if(processes_.begin(), processes_.end(), [&](const auto& p) { return p.slot >= slot; });
    if (next != processes_.end() && next->slot == slot) return;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    const pid_t pid = ::fork();  // this process has no threads and never touches a GPU
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      for (const Process& other : processes_) ::close(other.socket);
      const bool onGpu = options_.device == "gpu";
      serve(ends[1], onGpu, [&] { return onGpu ? perf::makeGpuBackend(slot) : perf::makeCpuBackend(slot, 1 << 20); });
      ::_exit(0);
    }
    ::close(ends[1]);
    processes_.insert(next, Process{slot, pid, ends[0]});
  }

  // Returns when all ranks are connected and have begun to call collectives.
  void startGeneration() {
    sendMessage(processes_[0].socket, Message{.type = MessageType::CreateUniqueId});
    Message start = expect(processes_[0], MessageType::UniqueIdCreated, Clock::now() + setupLimit);
    start.type = MessageType::Start;
    start.ranks = static_cast<std::int32_t>(processes_.size());
    start.seed = random_();
    for (Process& process : processes_) {
      sendMessage(process.socket, start);
      ++start.rank;
    }
    for (Process& process : processes_) expect(process, MessageType::Running, Clock::now() + setupLimit);
  }

  void checkClean(Process& process) {
    const Message clean = expect(process, MessageType::CleanedUp, Clock::now() + cleanupLimit);
    const std::array<int, 3> resources{clean.resources[0], clean.resources[1], clean.resources[2]};
    // The first generation opens resources that a process keeps, such as the log and the context of a GPU.
    if (process.resources[0] >= 0 && resources != process.resources) {
      fail(process, "held " + text(process.resources) + " a generation ago, and now " + text(resources));
    }
    if (resources[2] != 0) fail(process, "still maps shared memory: " + text(resources));
    process.resources = resources;
  }

  static std::string text(const std::array<int, 3>& resources) {
    return std::to_string(resources[0]) + " descriptors, " + std::to_string(resources[1]) + " threads, " +
           std::to_string(resources[2]) + " mappings";
  }

  Message expect(Process& process, MessageType type, Clock::time_point until) {
    Message message{};
    const ReceiveStatus status = receiveMessage(process.socket, message, until);
    if (status == ReceiveStatus::Closed) fail(process, "crashed");
    if (status == ReceiveStatus::TimedOut) fail(process, "hangs");
    if (message.type != type) fail(process, std::string("failed otherwise: ") + message.text);
    return message;
  }

  [[noreturn]] void fail(const Process& process, const std::string& what) {
    throw std::runtime_error("the process of slot " + std::to_string(process.slot) + " " + what);
  }

  void killProcess(std::size_t index) {
    const Process process = processes_[index];
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    ::close(process.socket);
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  Options options_;
  std::mt19937 random_;
  std::vector<Process> processes_;  // by slot; the position is the rank
  double slowest_ = 0;
  std::uint64_t calls_ = 0;
};

std::size_t sharedFiles() {
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    count += file.path().filename().string().find("mscclpp") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  cli::CommandLine commandLine("Kills random ranks at random moments, and looks after the survivors.");
  commandLine.add("--rounds", options.rounds, "how many ranks to kill").showDefault();
  commandLine.add("-n,--ranks", options.ranks, "processes at most").range(2, 8).showDefault();
  commandLine.add("--seed", options.seed, "to repeat a run");
  commandLine.add("--device", options.device).oneOf({"cpu", "gpu"}).showDefault();
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  int round = 0;
  try {
    const std::size_t filesBefore = sharedFiles();
    const auto start = Clock::now();
    {
      Controller controller(options);
      for (; round < options.rounds; ++round) controller.round();
      const std::chrono::duration<double> passed = Clock::now() - start;
      std::printf("%d ranks killed in %.1f s (seed %u): %llu calls before, each survivor threw within %.2f s\n", round,
                  passed.count(), options.seed, static_cast<unsigned long long>(controller.calls()),
                  controller.slowest());
    }
    if (sharedFiles() > filesBefore) throw std::runtime_error("files are left in /dev/shm");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "round %d of --seed %u --ranks %d: %s\n", round, options.seed, options.ranks, error.what());
    return 1;
  }
  return 0;
}
