// mscclpp-info: the capabilities of this machine, the transports that the library would choose between ranks, and why.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>

#include "mscclpp/host/base/env.hpp"
#include "report.hpp"
#include "tools/command_line/command_line.hpp"

namespace {

using mscclpp::info::Json;

Json host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return {{"name", name.data()}, {"cpus", std::thread::hardware_concurrency()}};
}

/// The environment variables that are set and that the library reads, without the value of the secret.
Json environment() {
  Json variables = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const auto name = variable.substr(0, variable.find('='));
    if (name.starts_with("MSCCLPP_") || name == "NCCL_NVLS_ENABLE" || name == "CUDA_VISIBLE_DEVICES") {
      const bool secret = name == "MSCCLPP_SECRET";
      variables[std::string(name)] =
          secret ? "(set)" : std::string(variable.substr(std::min(variable.size(), name.size() + 1)));
    }
  }
  return variables;
}

Json makeReport() {
  Json report{{"mscclpp", MSCCLPP_INFO_VERSION}, {"host", host()}};
  report.update(mscclpp::info::queryGpus());
  report.update(mscclpp::info::queryNics(report["gpus"]));
  report["cpuRanks"] = {{"transport", "SharedMemory"}, {"reason", "peers map the memory of a HostBuffer"}};
  report["interHost"] = mscclpp::info::chooseInterHostTransports(report["gpus"], report["nics"]);
  report["environment"] = environment();
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  mscclpp::cli::CommandLine commandLine(
      "Prints the capabilities of this machine and the transports that mscclpp would choose between ranks, and why.");
  bool json = false;
  commandLine.addFlag("--json", json, "print one JSON object; docs/info.md lists its fields");
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  try {
    static_cast<void>(mscclpp::env());  // throws if a variable has an invalid value
    const Json report = makeReport();
    // JSON must be UTF-8; names and variables may contain other bytes.
    constexpr auto repair = Json::error_handler_t::replace;
    fmt::print("{}", json ? report.dump(2, ' ', false, repair) + "\n" : mscclpp::info::describe(report));
    if (std::fflush(stdout) != 0) throw fmt::system_error(errno, "writing");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-info: {}\n", error.what());
    return 1;
  }
}
