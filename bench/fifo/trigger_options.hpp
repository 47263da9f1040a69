// How triggers are pushed, on the command lines of the benchmarks of FIFOs and of port channels.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "mscclpp/sync/fifo.hpp"

namespace mscclpp::bench {

/// What the command line calls the values of an option.
template <class Value>
using Names = std::map<std::string, Value>;

inline const Names<Publish> publishes{
    {"nothing", Publish::Nothing}, {"device", Publish::Device}, {"system", Publish::System}};
inline const Names<int> layouts{{"compact", 0}, {"wide", 1}};

template <class Value>
std::string nameIn(const Names<Value>& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "?";
}

/// Adds an option that takes a list of names.
template <class Value>
void addNamed(CLI::App& app, const std::string& option, std::vector<Value>& values, const Names<Value>& names,
              const std::string& description) {
  app.add_option(option, values, description)->delimiter(',')->transform(CLI::CheckedTransformer(names));
}

/// --publish and --trigger. pushed: what waits for earlier writes, "push" or "put".
inline void addTriggerOptions(CLI::App& app, const std::string& pushed, std::vector<Publish>& published,
                              std::vector<int>& wide) {
  addNamed(app, "--publish", published, publishes,
           "which earlier writes a " + pushed + " waits for: nothing, device, system");
  addNamed(app, "--trigger", wide, layouts, "compact (16 bytes) or wide (64)");
}

}  // namespace mscclpp::bench
