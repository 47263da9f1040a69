// Formats the report as text.
#include <fmt/format.h>

#include <iterator>

#include "report.hpp"

namespace mscclpp::info {

namespace {

std::string text(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joinTrueKeys(const Json& flags) {
  std::string list;
  for (const auto& [name, value] : flags.items()) {
    if (value == true) list += (list.empty() ? "" : ", ") + name;
  }
  return list.empty() ? "none" : list;
}

std::string describeLinks(const Json& gpu) {
  const Json& links = gpu["links"];
  if (links.is_null()) return "links unknown";
  if (links["active"] == 0) return "no NVLink";
  return fmt::format("{} links of NVLink {}{}", links["active"].get<int>(), links["nvlinkVersion"].get<int>(),
                     links["viaSwitch"] == true ? " to switches" : "");
}

}  // namespace

std::string describe(const Json& report) {
  std::string out;
  const auto line = [&](fmt::string_view format, const auto&... arguments) {
    fmt::vformat_to(std::back_inserter(out), format, fmt::make_format_args(arguments...));
    out += '\n';
  };
  const Json& cuda = report["cuda"];
  line("mscclpp {} on {}, {} CPUs", text(report["mscclpp"]), text(report["host"]["name"]),
       text(report["host"]["cpus"]));
  line("CUDA: driver {}, runtime {}, NVML {}{}", text(cuda["driver"]), text(cuda["runtime"]), text(cuda["nvml"]),
       cuda["error"].is_null() ? "" : "; " + text(cuda["error"]));
  for (const Json& gpu : report["gpus"]) {
    line("GPU {}: {}, sm {}, {:.0f} GiB, {} multiprocessors, PCI {}, UUID {}, NUMA node {}, {}", text(gpu["index"]),
         text(gpu["name"]), text(gpu["computeCapability"]), gpu["memoryBytes"].get<double>() / (1 << 30),
         text(gpu["multiprocessors"]), text(gpu["pciBusId"]), text(gpu["uuid"]), text(gpu["numaNode"]),
         describeLinks(gpu));
    line("  memory can be exported as: {}; bulk copies: {}", joinTrueKeys(gpu["memoryHandles"]),
         gpu["bulkCopies"] == true ? "yes" : "no");
    line("  multicast: {} ({})", gpu["multicast"]["used"] == true ? "yes" : "no", text(gpu["multicast"]["reason"]));
  }
  for (const Json& pair : report["pairs"]) {
    line("GPU {} to GPU {}: {} ({}, {})", text(pair["from"]), text(pair["to"]), text(pair["transport"]),
         text(pair["link"]), text(pair["reason"]));
  }
  if (report["gpus"].empty()) line("no GPU: ranks run on CPUs");
  line("CPU ranks of this host: {} ({})", text(report["cpuRanks"]["transport"]), text(report["cpuRanks"]["reason"]));
  for (const Json& nic : report["nics"]) {
    std::string distances;
    for (const Json& distance : nic["distances"]) {
      distances +=
          fmt::format("{}GPU {} {}", distances.empty() ? "; " : ", ", text(distance["gpu"]), text(distance["level"]));
    }
    line("{}: {}{}", text(nic["name"]), text(nic["transport"]), distances);
  }
  if (!report["verbs"]["error"].is_null()) line("verbs: {}", text(report["verbs"]["error"]));
  for (const Json& choice : report["interHost"]) {
    const std::string ranks = choice["gpu"].is_null() ? "CPU ranks" : "GPU " + text(choice["gpu"]);
    line("between hosts, {}: {} ({})", ranks, text(choice["transport"]), text(choice["reason"]));
  }
  for (const auto& [name, value] : report["environment"].items()) line("{}={}", name, text(value));
  return out;
}

}  // namespace mscclpp::info
