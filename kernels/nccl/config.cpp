#include "kernels/nccl/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/nccl/result.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

namespace {

// Contexts, and signals of each: the memory of their counters is their product, for each rank.
constexpr int mostSignalNames = 256;

ncclConfig_t emptyConfig() {
  return {.size = sizeof(ncclConfig_t),
          .magic = configMagic,
          .version = 0,
          .blocking = undefinedInt,
          .cgaClusterSize = undefinedInt,
          .minCTAs = undefinedInt,
          .maxCTAs = undefinedInt,
          .netName = nullptr,
          .splitShare = undefinedInt,
          .trafficClass = undefinedInt,
          .commName = nullptr,
          .collnetEnable = undefinedInt,
          .CTAPolicy = undefinedInt,
          .shrinkShare = undefinedInt,
          .nvlsCTAs = undefinedInt,
          .nChannelsPerNetPeer = undefinedInt,
          .nvlinkCentricSched = undefinedInt,
          .graphUsageMode = undefinedInt,
          .numRmaCtx = undefinedInt,
          .maxP2pPeers = undefinedInt,
          .graphStreamOrdering = undefinedInt,
          .launchOrderImplicit = undefinedInt,
          .numRmaSig = undefinedInt,
          .rmaEagerInit = undefinedInt,
          .hostCftMode = undefinedInt,
          .nvlsHostMode = undefinedInt};
}

void requireRange(const char* field, int value, int low, int high) {
  if (value == undefinedInt || (value >= low && value <= high)) return;
  throwInvalidArgument(std::string("config.") + field + " is " + std::to_string(value) + "; allowed is " +
                       std::to_string(low) + " to " + std::to_string(high));
}

}  // namespace

CommConfig readConfig(const ncclConfig_t* config, const CommConfig& parent) {
  ncclConfig_t own = emptyConfig();
  if (config != nullptr) {
    if (config->magic != configMagic || config->size < offsetof(ncclConfig_t, blocking) + sizeof(int)) {
      throwInvalidArgument("the config was not initialised: assign NCCL_CONFIG_INITIALIZER to it first");
    }
    std::memcpy(&own, config, std::min(config->size, sizeof own));
    // Of a field that the caller's structure has a part of, nothing is read.
    if (config->size < offsetof(ncclConfig_t, commName) + sizeof own.commName) own.commName = nullptr;
  }
  constexpr int maxBlocks = 65535;
  requireRange("blocking", own.blocking, 0, 1);
  requireRange("minCTAs", own.minCTAs, 1, maxBlocks);
  requireRange("maxCTAs", own.maxCTAs, 1, maxBlocks);
  requireRange("splitShare", own.splitShare, 0, 1);
  requireRange("shrinkShare", own.shrinkShare, 0, 1);
  requireRange("numRmaCtx", own.numRmaCtx, 0, mostSignalNames);
  requireRange("numRmaSig", own.numRmaSig, 0, mostSignalNames);
  if (own.minCTAs != undefinedInt && own.maxCTAs != undefinedInt && own.minCTAs > own.maxCTAs) {
    throwInvalidArgument("config.minCTAs is greater than config.maxCTAs");
  }
  CommConfig read = parent;
  if (own.commName != nullptr) read.name = own.commName;
  if (own.maxCTAs != undefinedInt) read.maxBlocks = own.maxCTAs;
  if (own.numRmaCtx != undefinedInt) read.signals.contexts = std::max(own.numRmaCtx, read.signals.contexts);
  if (own.numRmaSig != undefinedInt) read.signals.signals = std::max(own.numRmaSig, read.signals.signals);
  if (const int most = env()->ncclMaxCtas; most > 0 && (read.maxBlocks == 0 || most < read.maxBlocks)) {
    read.maxBlocks = most;
  }
  return read;
}

ncclConfig_t toNcclConfig(const CommConfig& config) {
  ncclConfig_t options = emptyConfig();
  options.size = offsetof(ncclConfig_t, graphUsageMode);  // the fields of 2.28
  options.version = 22809;
  if (!config.name.empty()) options.commName = config.name.c_str();
  if (config.maxBlocks > 0) options.maxCTAs = config.maxBlocks;
  return options;
}

CallConfig readConfig(const ncclCollConfig_t& config) {
  ncclCollConfig_t own{};
  own.forceAlgSelection = 1;
  if (config.magic != configMagic || config.size < offsetof(ncclCollConfig_t, ext)) {
    throwInvalidArgument("the config was not initialised: assign NCCL_COLLCONFIG_INITIALIZER to it first");
  }
  std::memcpy(&own, &config, std::min(config.size, sizeof own));
  CallConfig read;
  if (own.algSelection != nullptr && own.forceAlgSelection != 0) read.algorithm = own.algSelection;
  read.completionEvent = own.launchCompletionEvent;
  return read;
}

}  // namespace mscclpp::nccl
