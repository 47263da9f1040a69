// The report of mscclpp-info as JSON: each function gathers one part, with the reason where something is missing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace mscclpp::info {

using Json = nlohmann::ordered_json;

/// {"cuda": CUDA support of this build and machine, "gpus": [one entry per GPU], "pairs": [one entry per pair of GPUs]}
Json queryGpus();

/// {"verbs": verbs support of this build and machine, "nics": [one entry per device, with its distance to each GPU]}
Json queryNics(const Json& gpus);

/// [{"gpu", "transport", "reason"}]: the transport to ranks of other hosts for a rank with each GPU; without GPUs one
/// entry for CPU ranks.
Json chooseInterHostTransports(const Json& gpus, const Json& nics);

/// The report as text for the terminal.
std::string describe(const Json& report);

}  // namespace mscclpp::info
