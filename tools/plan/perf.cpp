#include "perf.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::plan_tool {

namespace {

/// The command of mscclpp-perf; null: it has none.
const char* commandOf(plan::CollectiveKind kind) {
  using K = plan::CollectiveKind;
  switch (kind) {
    case K::AllReduce:
      return "all_reduce";
    case K::AllGather:
      return "all_gather";
    case K::ReduceScatter:
      return "reduce_scatter";
    case K::AllToAll:
      return "all_to_all";
    case K::Broadcast:
      return "broadcast";
    case K::Reduce:
      return "reduce";
    case K::Gather:
      return "gather";
    case K::Scatter:
      return "scatter";
    case K::SendReceive:
      return "send_receive";
    case K::Custom:
      return nullptr;
  }
  return nullptr;
}

std::string perfProgram() {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const char* place : {"mscclpp-perf", "../../bench/perf/mscclpp-perf"}) {
    if (std::filesystem::exists(folder / place)) return (folder / place).lexically_normal().string();
  }
  return "mscclpp-perf";
}

}  // namespace

void execPerf(const std::string& file, const plan::NamedPlan& plan, const std::vector<std::string>& arguments) {
  const char* command = commandOf(plan.collective);
  if (command == nullptr) {
    throw Error(
        "mscclpp-perf does not know what a custom collective computes: call the plan from a program of your own "
        "(Executor, docs/plans.md)",
        ErrorCode::InvalidUsage);
  }
  const std::string program = perfProgram();
  std::vector<std::string> words{program, command, "--ranks", std::to_string(plan.ranks), "--plan", file};
  if (plan.inPlace) words.push_back("--in-place");
  if (plan.root != 0) words.insert(words.end(), {"--root", std::to_string(plan.root)});
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(program.c_str(), argv.data());
  throw SysError("starting " + program + ": install it beside mscclpp-plan, or where PATH names it", errno);
}

}  // namespace mscclpp::plan_tool
