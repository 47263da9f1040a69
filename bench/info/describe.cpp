// The same facts as text.
#include <fmt/format.h>

#include <iterator>

#include "facts.hpp"

namespace mscclpp::info {

namespace {

std::string text(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string listTrue(const Json& flags) {
  std::string list;
  for (const auto& [name, value] : flags.items()) {
    if (value == true) list += (list.empty() ? "" : ", ") + name;
  }
  return list.empty() ? "none" : list;
}

std::string linksOf(const Json& gpu) {
  const Json& links = gpu["links"];
  if (links.is_null()) return "links unknown";
  if (links["active"] == 0) return "no NVLink";
  return fmt::format("{} links of NVLink {}{}", links["active"].get<int>(), links["nvlinkVersion"].get<int>(),
                     links["throughSwitch"] == true ? " to switches" : "");
}

}  // namespace

std::string describe(const Json& facts) {
  std::string out;
  const auto line = [&](fmt::string_view format, const auto&... arguments) {
    fmt::vformat_to(std::back_inserter(out), format, fmt::make_format_args(arguments...));
    out += '\n';
  };
  const Json& cuda = facts["cuda"];
  line("mscclpp {} on {}, {} CPUs", text(facts["mscclpp"]), text(facts["host"]["name"]), text(facts["host"]["cpus"]));
  line("CUDA: driver {}, runtime {}, NVML {}{}", text(cuda["driver"]), text(cuda["runtime"]), text(cuda["nvml"]),
       cuda["problem"].is_null() ? "" : "; " + text(cuda["problem"]));
  for (const Json& gpu : facts["gpus"]) {
    line("GPU {}: {}, sm {}, {:.0f} GiB, {} multiprocessors, PCI {}, NUMA node {}, {}", text(gpu["index"]),
         text(gpu["name"]), text(gpu["computeCapability"]), gpu["memoryBytes"].get<double>() / (1 << 30),
         text(gpu["multiprocessors"]), text(gpu["pciBusId"]), text(gpu["numaNode"]), linksOf(gpu));
    line("  memory can be shared by: {}; bulk copies: {}", listTrue(gpu["memoryHandles"]),
         gpu["bulkCopies"] == true ? "yes" : "no");
    line("  multicast: {} ({})", gpu["multicast"]["used"] == true ? "yes" : "no", text(gpu["multicast"]["why"]));
  }
  for (const Json& pair : facts["pairs"]) {
    line("GPU {} to GPU {}: {} ({}, {})", text(pair["from"]), text(pair["to"]), text(pair["transport"]),
         text(pair["link"]), text(pair["why"]));
  }
  if (facts["gpus"].empty()) line("no GPU: ranks run on CPUs");
  line("CPU ranks of this host: {} ({})", text(facts["cpuRanks"]["transport"]), text(facts["cpuRanks"]["why"]));
  for (const Json& nic : facts["nics"]) {
    std::string distances;
    for (const Json& distance : nic["distances"]) {
      distances +=
          fmt::format("{}GPU {} {}", distances.empty() ? "; " : ", ", text(distance["gpu"]), text(distance["level"]));
    }
    line("{}: {}{}", text(nic["name"]), text(nic["transport"]), distances);
  }
  if (!facts["verbs"]["problem"].is_null()) line("verbs: {}", text(facts["verbs"]["problem"]));
  for (const Json& choice : facts["betweenHosts"]) {
    const std::string who = choice["gpu"].is_null() ? "CPU ranks" : "GPU " + text(choice["gpu"]);
    line("between hosts, {}: {} ({})", who, text(choice["transport"]), text(choice["why"]));
  }
  for (const auto& [name, value] : facts["environment"].items()) line("{}={}", name, text(value));
  return out;
}

}  // namespace mscclpp::info
