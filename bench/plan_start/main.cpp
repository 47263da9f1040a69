// plan_start: how long the steps take that a process makes before it executes a plan. Run it twice for a warm cache.
// cpuMs is the processor time of the whole process, which other work on the machine changes less.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/json_line.hpp"
#include "kernels/plan/plan_source.hpp"
#include "kernels/plan/proofs.hpp"
#include "mscclpp/jit/program.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "tools/command_line/command_line.hpp"

namespace {

using namespace mscclpp;

/// Adds the milliseconds that `step` takes.
template <class Step>
auto timed(bench::JsonLine& line, const char* name, const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  auto result = step();
  line.add(name, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  return result;
}

void measure(const std::string& path, const std::string& architecture) {
  bench::JsonLine line;
  plan::NamedPlan plan = timed(line, "loadMs", [&] {
    std::ifstream file(path, std::ios::binary);
    return plan::fromJson(std::string((std::istreambuf_iterator<char>(file)), {}));
  });
  plan = timed(line, "verifyMs", [&] { return plan::Proofs::ofUser().verified(std::move(plan)); });
  const std::string source = timed(line, "sourceMs", [&] {
    return kernels::sourceOf(plan::programOf(plan, 0), {DataType::FLOAT16, ReduceOp::SUM, plan::PacketFormat::LL16,
                                                        plan.chunksPerPart, kernels::mostPlanThreads});
  });
  if (!architecture.empty()) {
    const jit::Program program = timed(line, "compileMs", [&] {
      return jit::compile(
          {.source = source, .name = "plan.cu", .kernels = {kernels::planKernelName}, .architecture = architecture});
    });
    line.add("compiled", !program.fromCache());
  }
  line.add("cpuMs", 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC)
      .add("ranks", plan.ranks)
      .add("blocks", plan::countOf(plan.blocks))
      .add("operations", plan::countOf(plan.operations));
  std::printf("%s\n", line.text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  cli::CommandLine commandLine("Times the steps before a plan's first call: load, verify, write and compile its code.");
  std::string path, architecture;
  commandLine.add("plan", path, "the plan: a file in MSCCL++'s JSON schema");
  commandLine.add("--architecture", architecture, "such as sm_90a: also compile the code of rank 0, by NVRTC");
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  try {
    measure(path, architecture);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_start: %s\n", error.what());
    return 1;
  }
  return 0;
}
