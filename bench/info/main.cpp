// mscclpp-info: what this machine offers to the library, what the library would use between each pair of ranks, and why.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>

#include "facts.hpp"
#include "mscclpp/host/env.hpp"

namespace {

using mscclpp::info::Json;

Json host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return {{"name", name.data()}, {"cpus", std::thread::hardware_concurrency()}};
}

/// The variables that are set and that the library reads; the secret is only said to be there.
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

Json gather() {
  Json facts{{"mscclpp", MSCCLPP_INFO_VERSION}, {"host", host()}};
  facts.update(mscclpp::info::gatherGpus());
  facts.update(mscclpp::info::gatherNics(facts["gpus"]));
  facts["cpuRanks"] = {{"transport", "SharedMemory"}, {"why", "memory of a HostBuffer, mapped by the peers"}};
  facts["betweenHosts"] = mscclpp::info::chooseBetweenHosts(facts["gpus"], facts["nics"]);
  facts["environment"] = environment();
  return facts;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Says what this machine offers to mscclpp, what it would use between each pair of ranks, and why."};
  bool json = false;
  app.add_flag("--json", json, "as one JSON object, whose fields docs/info.md lists");
  CLI11_PARSE(app, argc, argv);
  try {
    static_cast<void>(mscclpp::env());  // a variable that is not understood is the first thing to know
    const Json facts = gather();
    // Names and variables may be no UTF-8, which JSON has to be.
    constexpr auto repair = Json::error_handler_t::replace;
    fmt::print("{}", json ? facts.dump(2, ' ', false, repair) + "\n" : mscclpp::info::describe(facts));
    if (std::fflush(stdout) != 0) throw fmt::system_error(errno, "writing");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-info: {}\n", error.what());
    return 1;
  }
}
