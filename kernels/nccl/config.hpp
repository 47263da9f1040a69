// The options of a communicator: read from the caller's ncclConfig_t, whatever version it was compiled with.
#pragma once

#include <string>

#include "kernels/nccl/one_sided_call.hpp"
#include "kernels/nccl/types.hpp"

namespace mscclpp::nccl {

/// Those that mean something here. The others are hints for NCCL's own transports, and accepted.
struct CommConfig {
  std::string name;            ///< in messages
  int maxBlocks = 0;           ///< of a kernel: the least of maxCTAs and NCCL_MAX_CTAS; 0: neither is set
  SignalNames signals{4, 16};  ///< of one-sided calls, from each rank to each other: the most of all ranks
};

/// Reads the options; those that are not set are the parent's, for a communicator that is split from one. Null: none is
/// set. A config that is smaller than this library's has the fields of an older version. Throws ncclInvalidArgument for
/// what is no config, or has a value that NCCL does not accept.
CommConfig readConfig(const ncclConfig_t* config, const CommConfig& parent = {});

/// The same as a structure that NCCL 2.28 and newer accept. It refers to `config`.
ncclConfig_t toNcclConfig(const CommConfig& config);

/// Options of one collective. Throws ncclInvalidArgument as readConfig.
struct CallConfig {
  std::string algorithm;                  ///< to use; empty: any
  cudaEvent_t completionEvent = nullptr;  ///< to record when the call's work has ended; null: none
};
CallConfig readConfig(const ncclCollConfig_t& config);

}  // namespace mscclpp::nccl
