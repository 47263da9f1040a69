// What mscclpp-info finds out, as JSON: each function gathers one part, and says in it why something is missing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace mscclpp::info {

using Json = nlohmann::ordered_json;

/// {"cuda": how this build and machine stand to CUDA, "gpus": [a GPU each], "pairs": [how each GPU reaches each other one]}
Json gatherGpus();

/// {"verbs": how this build and machine stand to verbs devices, "nics": [a device each, with its distance to each GPU]}
Json gatherNics(const Json& gpus);

/// [{"gpu", "transport", "why"}]: what a rank with each GPU would take to ranks of other hosts; without GPUs one entry for CPU ranks.
Json chooseBetweenHosts(const Json& gpus, const Json& nics);

/// For people.
std::string describe(const Json& facts);

}  // namespace mscclpp::info
