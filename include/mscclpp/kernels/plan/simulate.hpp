// How long a plan would take: an alpha-beta model of its links.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// A message of n bytes arrives after seconds + n / bytesPerSecond, and occupies the link for the second term.
struct LinkModel {
  double seconds = 0;
  double bytesPerSecond = 1;
};

/// What connects the ranks. The defaults are of the order of one host with NVLink, and InfiniBand between hosts; they
/// are no measurements.
struct Topology {
  LinkModel local{0.5e-6, 2e12};                     ///< a rank's own memory, of each block
  LinkModel memory{0.8e-6, 400e9};                   ///< between ranks of a node, of each pair and direction
  LinkModel port{4e-6, 45e9};                        ///< through a proxy, of each pair and direction
  LinkModel switched{1.2e-6, 300e9};                 ///< a switch's reduction or multicast, of each rank
  LinkModel rank{0, 450e9};                          ///< all that leaves (or enters) the memory of a rank
  std::map<std::pair<int, int>, LinkModel> pairs{};  ///< other values for (from, to)
  double operationSeconds = 0.1e-6;                  ///< of each operation of a block
  double packetFactor = 2;                           ///< bytes on the way for a byte of data in packets
};

/// Reads a topology: {"memory": {"us": 0.8, "GBps": 400}, "port": ..., "local": ..., "switch": ..., "rank": ...,
/// "pairs": [{"from": 0, "to": 1, "us": 1, "GBps": 50}, ...], "operation_us": 0.1, "packet_factor": 2}; what is left
/// out has its default. Throws Error(InvalidUsage) with the key.
Topology topologyFromJson(std::string_view text);

/// An operation as it was carried out.
struct SimulatedOperation {
  int rank = 0;
  int block = 0;
  int operation = 0;  ///< of the block
  double begin = 0;   ///< seconds; waiting included
  double end = 0;
  int cause = -1;  ///< what it waited for longest: an index into Simulated::operations
};

struct Simulated {
  double seconds = 0;
  std::vector<SimulatedOperation> operations;
};

/// Runs one call of a plan on a message of `bytes` bytes (as NCCL's tables state sizes). Throws Error(InvalidUsage) if
/// the plan has faults of structure or waits for ever.
Simulated simulate(const Plan& plan, std::uint64_t bytes, const Topology& topology = {});

}  // namespace mscclpp::plan
