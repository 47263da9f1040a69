// The command-line options for triggers, shared by the benchmarks of FIFOs and of port channels.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/sync/fifo.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::bench {

inline const cli::NameMap<ReleaseScope> releaseScopes{
    {"none", ReleaseScope::None}, {"device", ReleaseScope::Device}, {"system", ReleaseScope::System}};
inline const cli::NameMap<int> triggerLayouts{{"compact", 0}, {"wide", 1}};

template <class Value>
std::string nameOfValue(const cli::NameMap<Value>& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "?";
}

/// Adds --release-scope and --trigger. pushed: the operation that waits for earlier writes, "push" or "put".
inline void addTriggerOptions(cli::Command& command, const std::string& pushed,
                              std::vector<ReleaseScope>& selectedScopes, std::vector<int>& wide) {
  command.addNamed("--release-scope", selectedScopes, releaseScopes,
                   "which earlier writes a " + pushed + " waits for: none, device, system");
  command.addNamed("--trigger", wide, triggerLayouts, "compact (16 bytes) or wide (64)");
}

}  // namespace mscclpp::bench
