// mscclpp-plan: verifies, shows, converts, simulates, runs and measures plans of collectives, and makes those of the
// library.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "mscclpp/kernels/plan/file.hpp"
#include "mscclpp/kernels/plan/library.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/structure.hpp"
#include "perf.hpp"
#include "plan_file.hpp"
#include "tools/command_line/command_line.hpp"

namespace {

using namespace mscclpp;

struct Options {
  std::string in, out = "-", topology, name;
  std::vector<std::uint64_t> sizes{1024, 65536, 1 << 20, 16 << 20, 256 << 20};
  std::uint64_t bytes = 1 << 20;
  std::vector<std::string> perfArguments;
  plan::LibraryArguments arguments{.ranks = 8};
};

plan::Topology topologyOf(const Options& options) {
  return options.topology.empty() ? plan::Topology{} : plan::topologyFromJson(plan_tool::readFile(options.topology));
}

void verify(const Options& options) {
  const plan::NamedPlan plan = plan::verified(plan::fromFile(options.in));
  std::printf("plan '%s' is proven: %d ranks, %zu blocks, %zu operations\n", plan.name.c_str(), plan.ranks,
              plan.blocks.size(), plan.operations.size());
}

void simulate(const Options& options) {
  const plan::NamedPlan plan = plan::fromFile(options.in);
  const plan::Topology topology = topologyOf(options);
  std::printf("%12s %12s %12s\n", "bytes", "time (us)", "GB/s");
  for (const std::uint64_t bytes : options.sizes) {
    const double seconds = plan::simulate(plan, bytes, topology).seconds;
    std::printf("%12llu %12.2f %12.2f\n", static_cast<unsigned long long>(bytes), seconds * 1e6,
                seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0);
  }
}

/// Each size once: some, or those that the arguments name.
void run(const Options& options) {
  std::vector<std::string> arguments{"--warmup", "0", "--calls", "1", "--repeats", "1"};
  const auto namesSizes = [](const std::string& argument) {
    for (const char* option : {"-b", "-e", "-f", "--begin", "--end", "--factor", "--sizes"})
      if (argument == option || argument.starts_with(std::string(option) + "=")) return true;
    return false;
  };
  if (std::none_of(options.perfArguments.begin(), options.perfArguments.end(), namesSizes)) {
    arguments.insert(arguments.end(), {"--sizes", "1K,64K,1M"});
  }
  arguments.insert(arguments.end(), options.perfArguments.begin(), options.perfArguments.end());
  plan_tool::execPerf(options.in, plan::fromFile(options.in), arguments);
}

void list() {
  for (const plan::LibraryPlan& entry : plan::libraryPlans()) std::printf("%-28s %s\n", entry.name, entry.description);
}

}  // namespace

int main(int argc, char** argv) {
  cli::CommandLine commandLine(
      "Plans of collectives, in MSCCL++'s JSON schema, MSCCL's XML or the text form. What is written follows from the "
      "name: .json, .xml, .svg (a picture), else text.");
  Options options;
  cli::Command verifying = commandLine.addCommand("verify", "prove that a plan is right, or say what is wrong");
  verifying.add("plan", options.in, "the file of the plan");
  cli::Command showing = commandLine.addCommand("show", "print a plan as text");
  showing.add("plan", options.in, "the file of the plan");
  cli::Command converting = commandLine.addCommand("convert", "write a plan in another format");
  converting.add("plan", options.in, "the file of the plan");
  converting.add("out", options.out, "the file to write");
  converting.addBytes("-b,--bytes", options.bytes, "the message of the call that a picture shows").showDefault();
  converting.add("-t,--topology", options.topology, "a file with the model of the links, for pictures");
  cli::Command simulating = commandLine.addCommand("simulate", "predict the time of calls by an alpha-beta model");
  simulating.add("plan", options.in, "the file of the plan");
  simulating.addBytes("-b,--bytes", options.sizes, "sizes of messages");
  simulating.add("-t,--topology", options.topology, "a file with the model of the links (docs/plans.md)");
  cli::Command running = commandLine.addCommand(
      "run", "execute a plan once per size, and check the results; arguments behind the file are mscclpp-perf's");
  cli::Command benching = commandLine.addCommand(
      "bench", "measure a plan beside the library's algorithm; arguments behind the file are mscclpp-perf's");
  for (cli::Command* command : {&running, &benching}) {
    command->add("plan", options.in, "the file of the plan");
    command->addRest(options.perfArguments);
  }
  cli::Command listing = commandLine.addCommand("list", "name the plans of the library");
  cli::Command making = commandLine.addCommand("make", "make a plan of the library, and prove it");
  making.add("name", options.name, "the plan: see list");
  making.add("-n,--ranks", options.arguments.ranks, "number of ranks").range(2, plan::maxPlanRanks).showDefault();
  making.add("--ranks-per-node", options.arguments.ranksPerNode, "0: one node")
      .range(0, plan::maxPlanRanks)
      .showDefault();
  making.add("--instances", options.arguments.instances, "parallel copies of the program")
      .range(1, plan::maxInstances)
      .showDefault();
  making.addNamed<msccl::Protocol>("--protocol", options.arguments.protocol,
                                   {{"Simple", msccl::Protocol::Simple}, {"LL", msccl::Protocol::LL}},
                                   "data and signals, or packets");
  making.addFlag("--in-place", options.arguments.inPlace, "for calls whose input and output are one buffer");
  making.add("-o,--out", options.out, "the file to write; -: text to standard output").showDefault();
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  const auto require = [&](const std::string& value, const char* name) -> std::optional<int> {
    if (!value.empty()) return std::nullopt;
    return commandLine.reject(name, "is missing");
  };
  try {
    if (listing.isChosen()) {
      list();
    } else if (making.isChosen()) {
      if (const auto exitCode = require(options.name, "name")) return *exitCode;
      const plan::NamedPlan plan = plan::verified(plan::makeLibraryPlan(options.name, options.arguments));
      plan_tool::writePlan(options.out, plan, options.bytes, topologyOf(options));
    } else {
      if (const auto exitCode = require(options.in, "plan")) return *exitCode;
      if (verifying.isChosen()) verify(options);
      if (running.isChosen()) run(options);
      if (benching.isChosen()) plan_tool::execPerf(options.in, plan::fromFile(options.in), options.perfArguments);
      if (simulating.isChosen()) simulate(options);
      if (showing.isChosen() || converting.isChosen()) {
        plan_tool::writePlan(options.out, plan::fromFile(options.in), options.bytes, topologyOf(options));
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mscclpp-plan: %s\n", error.what());
    return 1;
  }
  return 0;
}
