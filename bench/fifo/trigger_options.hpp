// The command-line options for triggers, shared by the benchmarks of FIFOs and of port channels.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "mscclpp/sync/fifo.hpp"

namespace mscclpp::bench {

/// Maps names on the command line to values of an option.
template <class Value>
using NameMap = std::map<std::string, Value>;

inline const NameMap<ReleaseScope> releaseScopes{
    {"none", ReleaseScope::None}, {"device", ReleaseScope::Device}, {"system", ReleaseScope::System}};
inline const NameMap<int> triggerLayouts{{"compact", 0}, {"wide", 1}};

template <class Value>
std::string nameOfValue(const NameMap<Value>& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "?";
}

/// Adds an option whose value is a list of names.
template <class Value>
void addEnumOption(CLI::App& app, const std::string& option, std::vector<Value>& values, const NameMap<Value>& names,
                   const std::string& description) {
  app.add_option(option, values, description)->delimiter(',')->transform(CLI::CheckedTransformer(names));
}

/// Adds --release-scope and --trigger. pushed: the operation that waits for earlier writes, "push" or "put".
inline void addTriggerOptions(CLI::App& app, const std::string& pushed, std::vector<ReleaseScope>& selectedScopes,
                              std::vector<int>& wide) {
  addEnumOption(app, "--release-scope", selectedScopes, releaseScopes,
                "which earlier writes a " + pushed + " waits for: none, device, system");
  addEnumOption(app, "--trigger", wide, triggerLayouts, "compact (16 bytes) or wide (64)");
}

}  // namespace mscclpp::bench
